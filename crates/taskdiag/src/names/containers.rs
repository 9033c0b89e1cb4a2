//! Names of containers, from the files of their runtimes, without asking a daemon.
//!
//! | runtime | files |
//! |---|---|
//! | docker | `/var/lib/docker/containers/ID/config.v2.json`; rootless `~/.local/share/docker/containers/…` |
//! | containerd | `/run/containerd/io.containerd.runtime.v2.task/{k8s.io,default}/ID/config.json`; k3s `/run/k3s/containerd/…` |
//! | cri-o | `/run/containers/storage/overlay-containers/ID/userdata/config.json` |
//! | podman | `/var/lib/containers/storage/overlay-containers/containers.json`, `/run/containers/storage/overlay-containers/volatile-containers.json`; rootless `~/.local/share/containers/…`, `/run/user/UID/containers/…` |

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use taskdiag_core::absent::Absent;
use taskdiag_core::cgroup::Runtime;

use crate::errands::{self, Errands};

/// The container of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wanted {
    pub id: String,
    /// `None` if the cgroup does not tell.
    pub runtime: Option<Runtime>,
    /// The user who runs the container, if it runs without root's rights.
    pub owner: Option<u32>,
}

/// What is known about a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerFacts {
    pub runtime: Result<Runtime, Absent>,
    pub name: Result<Vec<u8>, Absent>,
}

/// Larger files are not read.
const MAX_BYTES: u64 = 16 << 20;

/// How long one file may block its reader.
const PATIENCE: Duration = Duration::from_secs(1);

/// If a cgroup does not tell the runtime, the first runtime that has files of the container.
/// containerd also knows containers of Docker, and Podman reads the files of CRI-O.
const ORDER: [Runtime; 4] = [Runtime::Docker, Runtime::Containerd, Runtime::CriO, Runtime::Podman];

/// Reads the files of runtimes below `root`. `home` finds a user's directory.
pub(super) fn look_up(root: &Path, wanted: &Wanted, home: &dyn Fn(u32) -> Option<PathBuf>) -> ContainerFacts {
    let owner_home = wanted.owner.and_then(home);
    let candidates = match &wanted.runtime {
        Some(runtime) => std::slice::from_ref(runtime),
        None => &ORDER[..],
    };
    let mut missing = Absent::Unsupported;
    let mut errands = Errands::new(PATIENCE);
    for &runtime in candidates {
        let mut is_there = false;
        for (path, format) in files(runtime, wanted, owner_home.as_deref()) {
            let path = root.join(path.strip_prefix("/").unwrap_or(&path));
            match read(&mut errands, &path) {
                Err(reason @ (Absent::Denied | Absent::NoAnswer)) => missing = reason,
                Err(_) => {}
                Ok(document) => {
                    if let Some(name) = format.name(&document, &wanted.id) {
                        return ContainerFacts {
                            runtime: Ok(runtime),
                            name: Ok(name.trim_start_matches('/').as_bytes().to_vec()),
                        };
                    }
                    is_there |= format != Format::Storage;
                }
            }
        }
        if is_there {
            return ContainerFacts {
                runtime: Ok(runtime),
                name: Err(Absent::Unsupported),
            };
        }
    }
    ContainerFacts {
        runtime: wanted.runtime.ok_or(missing),
        name: Err(missing),
    }
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Docker's own description of a container.
    Docker,
    /// An OCI runtime's configuration, with annotations.
    Oci,
    /// A list of all containers.
    Storage,
}

impl Format {
    fn name<'a>(self, document: &'a Value, id: &str) -> Option<&'a str> {
        let annotation = |key: &str| document.get("annotations")?.get(key)?.as_str();
        let name = match self {
            Format::Docker => document.get("Name")?.as_str(),
            // For a pod's own container, this is the pod's name.
            Format::Oci => annotation("io.kubernetes.cri.container-name")
                .or_else(|| annotation("io.kubernetes.container.name"))
                .or_else(|| annotation("nerdctl/name"))
                .or_else(|| annotation("io.kubernetes.cri.sandbox-name")),
            Format::Storage => {
                let mut containers = document.as_array()?.iter();
                let container = containers.find(|container| container["id"].as_str() == Some(id))?;
                container.get("names")?.get(0)?.as_str()
            }
        };
        name.filter(|name| !name.is_empty())
    }
}

fn files(runtime: Runtime, wanted: &Wanted, home: Option<&Path>) -> Vec<(PathBuf, Format)> {
    let Wanted { id, owner, .. } = wanted;
    let mut files = Vec::new();
    let mut add = |path: String, format| files.push((PathBuf::from(path), format));
    match runtime {
        Runtime::Docker => {
            add(
                format!("/var/lib/docker/containers/{id}/config.v2.json"),
                Format::Docker,
            );
            if let Some(home) = home {
                let path = format!(".local/share/docker/containers/{id}/config.v2.json");
                files.push((home.join(path), Format::Docker));
            }
        }
        Runtime::Containerd => {
            for state in ["/run/containerd", "/run/k3s/containerd"] {
                for namespace in ["k8s.io", "default"] {
                    let path = format!("{state}/io.containerd.runtime.v2.task/{namespace}/{id}/config.json");
                    add(path, Format::Oci);
                }
            }
        }
        Runtime::CriO => {
            let path = format!("/run/containers/storage/overlay-containers/{id}/userdata/config.json");
            add(path, Format::Oci);
        }
        Runtime::Podman => {
            for path in [
                "/var/lib/containers/storage/overlay-containers/containers.json",
                "/var/lib/containers/storage/vfs-containers/containers.json",
                "/run/containers/storage/overlay-containers/volatile-containers.json",
            ] {
                add(path.to_owned(), Format::Storage);
            }
            if let Some(owner) = owner {
                let path = format!("/run/user/{owner}/containers/overlay-containers/volatile-containers.json");
                add(path, Format::Storage);
            }
            if let Some(home) = home {
                for directory in ["overlay-containers", "vfs-containers"] {
                    let path = format!(".local/share/containers/storage/{directory}/containers.json");
                    files.push((home.join(path), Format::Storage));
                }
            }
        }
        Runtime::Nspawn | Runtime::Lxc => {}
    }
    files
}

/// Reads a file as JSON. An invalid file counts like a missing one.
///
/// A user can replace their files by anything: a pipe, a link to a device, a file system that does
/// not answer. So another process checks the file before it opens it.
fn read(errands: &mut Errands, path: &Path) -> Result<Value, Absent> {
    let look = errands.look(path.as_os_str().as_bytes()).map_err(errands::absent)?;
    if !look.is_regular() || look.size > MAX_BYTES {
        return Err(Absent::Unsupported);
    }
    let mut bytes = vec![0; look.size as usize];
    let len = errands.read(0, &mut bytes).map_err(errands::absent)?;
    serde_json::from_slice(&bytes[..len]).map_err(|_| Absent::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f4a1c0d5b6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708";

    /// A directory that is removed at the end.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Root {
            let path = std::env::temp_dir().join(format!("taskdiag-containers-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir(&path).expect("a directory");
            Root(path)
        }

        fn with(self, path: &str, text: &str) -> Root {
            let path = self.0.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            std::fs::write(path, text).expect("a file");
            self
        }

        fn look_up(&self, runtime: Option<Runtime>, owner: Option<u32>) -> ContainerFacts {
            let wanted = Wanted {
                id: ID.to_owned(),
                runtime,
                owner,
            };
            let home = |uid| Some(PathBuf::from(format!("/home/{uid}")));
            look_up(&self.0, &wanted, &home)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn found(runtime: Runtime, name: &str) -> ContainerFacts {
        ContainerFacts {
            runtime: Ok(runtime),
            name: Ok(name.into()),
        }
    }

    /// Check that names are found in each runtime's files, which are shortened copies of real ones.
    #[test]
    fn files_have_names() {
        let docker = r#"{"StreamConfig":{},"State":{"Running":true},"ID":"x","Name":"/web","Driver":"overlay2"}"#;
        let containerd = r#"{"ociVersion":"1.1.0","hostname":"web-0","annotations":{"io.kubernetes.cri.container-name":"nginx",
            "io.kubernetes.cri.container-type":"container","io.kubernetes.cri.sandbox-name":"web-0"}}"#;
        let sandbox = r#"{"annotations":{"io.kubernetes.cri.container-type":"sandbox","io.kubernetes.cri.sandbox-name":"web-0"}}"#;
        let nerdctl = r#"{"annotations":{"nerdctl/name":"web","nerdctl/namespace":"default"}}"#;
        let crio = r#"{"annotations":{"io.kubernetes.container.name":"nginx","io.kubernetes.cri-o.Name":"k8s_nginx"}}"#;
        let storage =
            format!(r#"[{{"id":"00","names":["other"]}},{{"id":"{ID}","names":["web","alias"],"image":"x"}}]"#);
        let podman = Runtime::Podman;
        for (runtime, owner, path, text, name) in [
            (
                Runtime::Docker,
                None,
                format!("/var/lib/docker/containers/{ID}/config.v2.json"),
                docker,
                "web",
            ),
            (
                Runtime::Docker,
                Some(1000),
                format!("/home/1000/.local/share/docker/containers/{ID}/config.v2.json"),
                docker,
                "web",
            ),
            (
                Runtime::Containerd,
                None,
                format!("/run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json"),
                containerd,
                "nginx",
            ),
            (
                Runtime::Containerd,
                None,
                format!("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json"),
                sandbox,
                "web-0",
            ),
            (
                Runtime::Containerd,
                None,
                format!("/run/containerd/io.containerd.runtime.v2.task/default/{ID}/config.json"),
                nerdctl,
                "web",
            ),
            (
                Runtime::CriO,
                None,
                format!("/run/containers/storage/overlay-containers/{ID}/userdata/config.json"),
                crio,
                "nginx",
            ),
            (
                podman,
                None,
                "/var/lib/containers/storage/overlay-containers/containers.json".to_owned(),
                &storage,
                "web",
            ),
            (
                podman,
                None,
                "/run/containers/storage/overlay-containers/volatile-containers.json".to_owned(),
                &storage,
                "web",
            ),
            (
                podman,
                Some(1000),
                "/home/1000/.local/share/containers/storage/overlay-containers/containers.json".to_owned(),
                &storage,
                "web",
            ),
            (
                podman,
                Some(1000),
                "/run/user/1000/containers/overlay-containers/volatile-containers.json".to_owned(),
                &storage,
                "web",
            ),
        ] {
            let root = Root::new("files").with(&path, text);
            assert_eq!(root.look_up(Some(runtime), owner), found(runtime, name), "{path}");
            // The files say the runtime, too.
            assert_eq!(root.look_up(None, owner), found(runtime, name), "{path}");
        }
    }

    /// Check that missing or invalid files give no name, and that the runtime is reported if it is
    /// known.
    #[test]
    fn nothing_is_made_up() {
        let unknown = |runtime| ContainerFacts {
            runtime,
            name: Err(Absent::Unsupported),
        };
        let nothing = Root::new("nothing");
        assert_eq!(
            nothing.look_up(Some(Runtime::Docker), None),
            unknown(Ok(Runtime::Docker))
        );
        assert_eq!(nothing.look_up(None, None), unknown(Err(Absent::Unsupported)));
        let path = format!("/var/lib/docker/containers/{ID}/config.v2.json");
        for text in ["", "{", "[]", "null", r#"{"Name":7}"#, r#"{"Name":""}"#] {
            let root = Root::new("nonsense").with(&path, text);
            assert_eq!(
                root.look_up(Some(Runtime::Docker), None),
                unknown(Ok(Runtime::Docker)),
                "{text}"
            );
        }
        let others = r#"[{"id":"00","names":["other"]},7,{"id":1}]"#;
        let root = Root::new("others").with("/var/lib/containers/storage/overlay-containers/containers.json", others);
        assert_eq!(root.look_up(None, None), unknown(Err(Absent::Unsupported)));
        // A pipe instead of the file does not block the reader.
        let root = Root::new("pipe").with("/var/lib/containers/storage/overlay-containers/x", "");
        let pipe = root
            .0
            .join("var/lib/containers/storage/overlay-containers/containers.json");
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        assert_eq!(root.look_up(Some(Runtime::Podman), None), unknown(Ok(Runtime::Podman)));
        // Nor does a link to a device: reading this one would never end.
        std::fs::remove_file(&pipe).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", &pipe).expect("a link");
        assert_eq!(root.look_up(Some(Runtime::Podman), None), unknown(Ok(Runtime::Podman)));
        // A file that is too large is not read.
        std::fs::remove_file(&pipe).expect("a link");
        let large = std::fs::File::create(&pipe).expect("a file");
        large.set_len(MAX_BYTES + 1).expect("a hole");
        assert_eq!(root.look_up(Some(Runtime::Podman), None), unknown(Ok(Runtime::Podman)));
    }
}
