//! Executables that are gone or were renamed, and cgroups.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::{species, Species};
use crate::den::{exec_child, fork_child, Den, Doing as _};
use crate::facts::Facts;
use crate::sys;

pub(super) const SPECIES: &[Species] = &[
    species("exe-deleted", "its executable was deleted", |den| executable(den, None)),
    species(
        "exe-renamed",
        "its executable was renamed, to a name with a newline",
        |den| executable(den, Some("another\nname (deleted)")),
    ),
    species("cgroup", "in a cgroup two deep with spaces in its name", cgroup),
];

/// Runs a copy of this executable and then removes or renames the file.
fn executable(den: &mut Den, new_name: Option<&str>) -> io::Result<Facts> {
    let copy = den.dir()?.join("zoo copy");
    fs::copy("/proc/self/exe", &copy).doing("copying the executable")?;
    let mut facts = exec_child("rest", Some(&copy), &[b"zoo".to_vec(), b"copy".to_vec()], &[])?;
    facts.exe = Some(match new_name {
        Some(name) => {
            let renamed = copy.with_file_name(name);
            fs::rename(&copy, &renamed)?;
            renamed.as_os_str().as_bytes().to_vec()
        }
        None => {
            fs::remove_file(&copy)?;
            [copy.as_os_str().as_bytes(), b" (deleted)"].concat()
        }
    });
    Ok(facts)
}

/// Where a cgroup v2 tree is mounted with its root.
fn cgroup2_mount() -> io::Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = mounts.lines().find_map(|line| {
        let (mount, fs) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (root == "/" && fs.starts_with("cgroup2 ")).then(|| PathBuf::from(point))
    });
    mount.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no cgroup v2 tree is mounted"))
}

fn cgroup(den: &mut Den) -> io::Result<Facts> {
    let mount = cgroup2_mount()?;
    let outer = format!("taskdiag zoo {}", sys::getpid());
    let inner = Path::new(&outer).join("in ner \\ (x)");
    den.make_cgroup(mount.join(&outer))?;
    den.make_cgroup(mount.join(&inner))?;
    let mut facts = fork_child(|_| Ok(()))?;
    fs::write(mount.join(&inner).join("cgroup.procs"), facts.pid.to_string()).doing("moving into a cgroup")?;
    facts.cgroup = Some([b"/", inner.as_os_str().as_bytes()].concat());
    Ok(facts)
}
