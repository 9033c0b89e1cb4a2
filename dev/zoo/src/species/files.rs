//! Executables that are gone or were renamed, and cgroups.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::process::Resource;

use super::Species;
use crate::facts::Facts;
use crate::keeper::{exec_child, fork_child, Doing as _, Keeper};
use crate::sys;

pub(super) const SPECIES: &[Species] = species! {
    "exe-deleted": "its executable was deleted" => |keeper| executable(keeper, None);
    "exe-renamed": "its executable was renamed, to a name with a newline" =>
        |keeper| executable(keeper, Some("another\nname (deleted)"));
    "files-10000": "10,000 open files" => |_| files(10_000);
    "cgroup": "in a cgroup two deep with spaces in its name" => |keeper| cgroup(keeper, &["in ner \\ (x)"]);
    "cgroup-deep": "in a cgroup 20 deep, with a path of more than 1,000 bytes" => |keeper| {
        let name = "a name of sixty bytes".repeat(3);
        cgroup(keeper, &[&name[..60]; 19])
    };
};

/// Opens the same file `count` times.
fn files(count: usize) -> io::Result<Facts> {
    let mut facts = fork_child(|_| {
        sys::raise_limit(Resource::Nofile, count as u64 + 100)?;
        for _ in 0..count {
            std::mem::forget(fs::File::open("/dev/null")?);
        }
        Ok(())
    })?;
    facts.fd_at_least_count = Some(count as u64);
    Ok(facts)
}

/// Runs a copy of this executable, and then removes or renames the file.
fn executable(keeper: &mut Keeper, new_name: Option<&str>) -> io::Result<Facts> {
    let copy = keeper.dir()?.join("zoo copy");
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

/// Where the unified cgroup hierarchy is mounted with its root, according to the text of
/// `/proc/self/mountinfo`. `None` if it is not.
pub fn cgroup_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let (root, point) = (words.next()?, words.next()?);
        (root == "/" && system.starts_with("cgroup2 ")).then(|| PathBuf::from(point))
    })
}

/// A process in the innermost of several new cgroups, each within the one before.
fn cgroup(keeper: &mut Keeper, below: &[&str]) -> io::Result<Facts> {
    let mount = cgroup_mount(&fs::read_to_string("/proc/self/mountinfo")?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no cgroup v2 tree is mounted"))?;
    let mut inner = PathBuf::from(format!("taskdiag zoo {}", sys::getpid()));
    keeper.make_cgroup(mount.join(&inner))?;
    for name in below {
        inner.push(name);
        keeper.make_cgroup(mount.join(&inner))?;
    }
    let mut facts = fork_child(|_| Ok(()))?;
    fs::write(mount.join(&inner).join("cgroup.procs"), facts.pid.to_string()).doing("moving into a cgroup")?;
    facts.cgroup = Some([b"/", inner.as_os_str().as_bytes()].concat());
    Ok(facts)
}
