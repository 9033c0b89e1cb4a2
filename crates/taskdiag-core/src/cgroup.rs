//! What the path of a cgroup says about systemd units, containers and pods. Nothing here reads a
//! file.
//!
//! Paths have the form of [`Field::Cgroup`](crate::field::Field::Cgroup).
//! The names in them are chosen by whoever made the cgroups: any cgroup whose path looks like a
//! container's is taken for one.

crate::named_enum! {
    /// What started a container.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[allow(missing_docs)]
    pub enum Runtime {
        Docker => "docker",
        Containerd => "containerd",
        CriO => "cri-o",
        Podman => "podman",
        Nspawn => "systemd-nspawn",
        Lxc => "lxc",
    }
    /// All.
    pub const ALL;
    /// The value of [`Field::ContainerRuntime`](crate::field::Field::ContainerRuntime).
    pub fn name;
}

/// A container, as described by the path of its cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container<'a> {
    /// What started it. Some runtimes use the same paths in Kubernetes.
    pub runtime: Option<Runtime>,
    /// Its id, or its name as in the path.
    pub id: &'a [u8],
    /// Whether `id` is a name. systemd escapes names: see [`unescape`].
    pub is_name: bool,
}

/// The names in a path, from the root. A path outside the reader's cgroup namespace begins with
/// `..`.
fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> + Clone {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b"..")
}

/// The systemd unit of the system manager: the first name after the slices (`sd_pid_get_unit(3)`).
pub fn unit(path: &[u8]) -> Option<&[u8]> {
    unit_behind_slices(names(path))
}

/// The systemd unit of a user's manager: after the manager's own unit or after a session
/// (`sd_pid_get_user_unit(3)`).
pub fn user_unit(path: &[u8]) -> Option<&[u8]> {
    let mut names = names(path).skip_while(|name| is_slice(name));
    let first = names.next()?;
    if is_user_manager(first) || is_session(first) {
        unit_behind_slices(names)
    } else {
        None
    }
}

/// The slice of what is in no other.
pub const ROOT_SLICE: &[u8] = b"-.slice";

/// The innermost slice before any other name (`sd_pid_get_slice(3)`). `None` for the root slice.
pub fn slice(path: &[u8]) -> Option<&[u8]> {
    let slices = names(path).take_while(|name| is_slice(name));
    slices.last().map(without_escape)
}

fn unit_behind_slices<'a>(names: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    let mut behind = names.skip_while(|name| is_slice(name));
    let name = without_escape(behind.next()?);
    (is_unit(name, true) && !name.ends_with(b".slice")).then_some(name)
}

/// A name without the `_` that systemd puts before names that the kernel could take for its own
/// files.
fn without_escape(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"_").unwrap_or(name)
}

fn is_slice(name: &[u8]) -> bool {
    name.ends_with(b".slice") && is_unit(without_escape(name), false)
}

/// Whether a name is a unit's: `prefix.type`, or with an instance `prefix@instance.type`.
fn is_unit(name: &[u8], may_have_instance: bool) -> bool {
    const TYPES: [&[u8]; 11] = [
        b"service",
        b"socket",
        b"target",
        b"device",
        b"mount",
        b"automount",
        b"swap",
        b"timer",
        b"path",
        b"slice",
        b"scope",
    ];
    const MAX_NAME_BYTES: usize = 255;
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return false;
    };
    let (prefix, kind) = (&name[..dot], &name[dot + 1..]);
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(byte);
    let has_instance = match prefix.iter().position(|&byte| byte == b'@') {
        None => false,
        Some(at) if at == 0 || at + 1 == prefix.len() => return false,
        Some(_) => true,
    };
    name.len() <= MAX_NAME_BYTES
        && !prefix.is_empty()
        && prefix.iter().all(is_valid)
        && TYPES.contains(&kind)
        && (may_have_instance || !has_instance)
}

fn is_user_manager(name: &[u8]) -> bool {
    between(name, b"user@", b".service").is_some_and(|uid| uid.iter().all(u8::is_ascii_digit))
}

fn is_session(name: &[u8]) -> bool {
    between(name, b"session-", b".scope").is_some_and(|id| id.iter().all(u8::is_ascii_alphanumeric))
}

/// The part between a beginning and an end. `None` if it is empty.
fn between<'a>(name: &'a [u8], begin: &[u8], end: &[u8]) -> Option<&'a [u8]> {
    let rest = name.strip_prefix(begin)?.strip_suffix(end)?;
    (!rest.is_empty()).then_some(rest)
}

/// The user whose slice the path is in. For a container without root's rights, this is the user who
/// runs it.
pub fn owner(path: &[u8]) -> Option<u32> {
    let uid = names(path).find_map(|name| between(name, b"user-", b".slice"))?;
    std::str::from_utf8(uid).ok()?.parse().ok()
}

/// The innermost container of a path.
pub fn container(path: &[u8]) -> Option<Container<'_>> {
    let mut inner: &[u8] = b"";
    let mut names = names(path).rev().peekable();
    while let Some(name) = names.next() {
        let outer = names.peek().copied().unwrap_or_default();
        if let Some(container) = lxc(name, outer)
            .or_else(|| nspawn(name, inner))
            .or_else(|| with_id(name, outer))
        {
            return Some(container);
        }
        inner = name;
    }
    None
}

/// LXC, LXD and Incus: `lxc.payload.NAME`, `lxc.payload/NAME` or `lxc/NAME`. `lxc.monitor.NAME` is
/// outside the container.
fn lxc<'a>(name: &'a [u8], outer: &[u8]) -> Option<Container<'a>> {
    let id = match name.strip_prefix(b"lxc.payload.") {
        Some(rest) if !rest.is_empty() => rest,
        _ if [&b"lxc"[..], b"lxc.payload"].contains(&outer) => name,
        _ => return None,
    };
    Some(Container {
        runtime: Some(Runtime::Lxc),
        id,
        is_name: true,
    })
}

/// systemd-nspawn: `systemd-nspawn@NAME.service` or `machine-NAME.scope`. The container is below it
/// in `payload`; `supervisor` is outside the container. Virtual machines have scopes of the same
/// form without `payload`.
fn nspawn<'a>(name: &'a [u8], inner: &[u8]) -> Option<Container<'a>> {
    let id = match between(name, b"systemd-nspawn@", b".service") {
        Some(id) if inner != b"supervisor" => id,
        _ if inner == b"payload" => between(name, b"machine-", b".scope")?,
        _ => return None,
    };
    Some(Container {
        runtime: Some(Runtime::Nspawn),
        id,
        is_name: true,
    })
}

/// Runtimes whose containers have ids: `RUNTIME-ID.scope`, `RUNTIME-ID`, `ID`, or
/// `SLICE:RUNTIME:ID` where runtime and kubelet disagree about systemd.
fn with_id<'a>(name: &'a [u8], outer: &[u8]) -> Option<Container<'a>> {
    let stem = name.strip_suffix(b".scope").unwrap_or(name);
    let made = |runtime, id| {
        Some(Container {
            runtime,
            id,
            is_name: false,
        })
    };
    if is_id(stem) {
        let runtime = match outer {
            b"docker" => Some(Runtime::Docker),
            b"libpod_parent" => Some(Runtime::Podman),
            _ => None,
        };
        return made(runtime, stem);
    }
    let separator = stem.iter().rposition(|byte| b"-:".contains(byte))?;
    let (prefix, id) = (&stem[..separator], &stem[separator + 1..]);
    if !is_id(id) {
        return None;
    }
    match prefix.rsplit(|&byte| byte == b':').next().unwrap_or(prefix) {
        b"docker" => made(Some(Runtime::Docker), id),
        b"cri-containerd" | b"nerdctl" => made(Some(Runtime::Containerd), id),
        b"crio" => made(Some(Runtime::CriO), id),
        b"libpod" | b"libpod-payload" => made(Some(Runtime::Podman), id),
        // The process that monitors a container is not in it.
        prefix if prefix.ends_with(b"-conmon") => None,
        _ => made(None, id),
    }
}

/// Whether a name is a container's id: 64 hexadecimal digits, or 32 and a number (Amazon ECS).
fn is_id(name: &[u8]) -> bool {
    let is_hex = |name: &[u8]| name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match name.len() {
        64 => is_hex(name),
        34.. => is_hex(&name[..32]) && name[32] == b'-' && name[33..].iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// The UID of the innermost Kubernetes pod of a path. systemd's slices contain it with underscores:
/// see [`pod_uid_text`].
pub fn pod_uid(path: &[u8]) -> Option<&[u8]> {
    names(path).rev().find_map(|name| {
        let slice = name.split(|&byte| byte == b':').next()?;
        let stem = slice.strip_suffix(b".slice").unwrap_or(slice);
        let uid = match stem.strip_prefix(b"pod") {
            Some(uid) => uid,
            None => {
                let at = stem.windows(4).rposition(|window| window == b"-pod")?;
                &stem[at + 4..]
            }
        };
        is_pod_uid(uid).then_some(uid)
    })
}

/// A UUID with dashes or underscores, or 32 hexadecimal digits: the UID of a static pod is a hash.
fn is_pod_uid(uid: &[u8]) -> bool {
    let is_uuid = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => b"-_".contains(byte),
        _ => byte.is_ascii_hexdigit(),
    };
    match uid.len() {
        32 => uid.iter().all(u8::is_ascii_hexdigit),
        36 => uid.iter().enumerate().all(is_uuid),
        _ => false,
    }
}

/// Appends the UID of a pod as Kubernetes writes it, with dashes.
pub fn pod_uid_text(uid: &[u8], out: &mut Vec<u8>) {
    out.extend(uid.iter().map(|&byte| if byte == b'_' { b'-' } else { byte }));
}

/// Appends a name without systemd's escapes: `\x2d` is a dash.
pub fn unescape(name: &[u8], out: &mut Vec<u8>) {
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let escaped = || {
            let digits = behind.strip_prefix(b"x")?.get(..2)?;
            u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        match escaped().filter(|_| first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = &behind[3..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Where nothing is expected.
    const NONE: Option<&str> = None;

    fn text(bytes: Option<&[u8]>) -> Option<&str> {
        bytes.map(|bytes| std::str::from_utf8(bytes).unwrap())
    }

    /// Check units and slices against what `systemctl status`, `loginctl` and `ps -o
    /// unit,uunit,slice` show for such paths.
    #[test]
    fn paths_tell_units() {
        for (path, unit_name, user_unit_name, slice_name) in [
            ("/", NONE, NONE, "-.slice"),
            ("/init.scope", Some("init.scope"), NONE, "-.slice"),
            ("/system.slice/ssh.service", Some("ssh.service"), NONE, "system.slice"),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                Some("getty@tty1.service"),
                NONE,
                "system-getty.slice",
            ),
            (
                "/system.slice/systemd-udevd.service/udev",
                Some("systemd-udevd.service"),
                NONE,
                "system.slice",
            ),
            (
                "/user.slice/user-1000.slice/session-3.scope",
                Some("session-3.scope"),
                NONE,
                "user-1000.slice",
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-4242.scope",
                Some("user@1000.service"),
                Some("app-gnome-firefox-4242.scope"),
                "user-1000.slice",
            ),
            (
                "/user.slice/user-1000.slice/user@1000.service/init.scope",
                Some("user@1000.service"),
                Some("init.scope"),
                "user-1000.slice",
            ),
            (
                "/user.slice/user-0.slice/user@0.service",
                Some("user@0.service"),
                NONE,
                "user-0.slice",
            ),
            (
                "/system.slice/ssh.service (deleted)",
                Some("ssh.service"),
                NONE,
                "system.slice",
            ),
            (
                "/../../system.slice/ssh.service",
                Some("ssh.service"),
                NONE,
                "system.slice",
            ),
            ("/_cgroup.service", Some("cgroup.service"), NONE, "-.slice"),
            ("/system.slice", NONE, NONE, "system.slice"),
            ("/docker/0123", NONE, NONE, "-.slice"),
            ("/foo@.service", NONE, NONE, "-.slice"),
            ("/@foo.service", NONE, NONE, "-.slice"),
            ("/lxc.payload.c1/system.slice/cron.service", NONE, NONE, "-.slice"),
            ("/a b.service", NONE, NONE, "-.slice"),
            ("/x.slice/.slice", NONE, NONE, "x.slice"),
            ("/x.slice/y@z.slice", NONE, NONE, "x.slice"),
            ("/user@x.service/a.service", Some("user@x.service"), NONE, "-.slice"),
            ("", NONE, NONE, "-.slice"),
        ] {
            let bytes = path.as_bytes();
            assert_eq!(text(unit(bytes)), unit_name, "{path}");
            assert_eq!(text(user_unit(bytes)), user_unit_name, "{path}");
            assert_eq!(text(slice(bytes).or(Some(ROOT_SLICE))), Some(slice_name), "{path}");
        }
    }

    const ID: &str = "3f4a1c0d5b6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708";
    const OTHER: &str = "00000000000000000000000000000000000000000000000000000000000000ff";
    const POD: &str = "0b2c3d4e-1f2a-4b3c-8d4e-5f6a7b8c9d0e";
    const HASH: &str = "0123456789abcdef0123456789abcdef";

    /// Check the paths of each runtime: with the cgroup drivers `cgroupfs` and `systemd`, alone, in
    /// Kubernetes, rootless, and nested.
    #[test]
    fn paths_tell_containers() {
        let docker = Some(Runtime::Docker);
        let containerd = Some(Runtime::Containerd);
        let crio = Some(Runtime::CriO);
        let podman = Some(Runtime::Podman);
        let nspawn = Some(Runtime::Nspawn);
        let lxc = Some(Runtime::Lxc);
        let none = None;
        let ecs = "0123456789abcdef0123456789abcdef-1234567890";
        for (path, expected, pod) in [
            // Docker.
            (format!("/docker/{ID}"), Some((docker, ID)), NONE),
            (format!("/system.slice/docker-{ID}.scope"), Some((docker, ID)), NONE),
            (format!("/system.slice/docker-{ID}.scope/init.scope"), Some((docker, ID)), NONE),
            (format!("/system.slice:docker:{ID}"), Some((docker, ID)), NONE),
            (
                format!("/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{ID}.scope"),
                Some((docker, ID)),
                NONE,
            ),
            (format!("/my-parent/{ID}"), Some((none, ID)), NONE),
            // Within Docker: Docker, and a node of kind.
            (format!("/docker/{OTHER}/docker/{ID}"), Some((docker, ID)), NONE),
            (
                format!(
                    "/system.slice/docker-{OTHER}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/\
                     kubelet-kubepods-burstable-pod{}.slice/cri-containerd-{ID}.scope",
                    POD.replace('-', "_")
                ),
                Some((containerd, ID)),
                Some(POD),
            ),
            // Kubernetes with containerd, by systemd and by cgroupfs, and where the two disagree.
            (
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{}.slice/cri-containerd-{ID}.scope",
                    POD.replace('-', "_")
                ),
                Some((containerd, ID)),
                Some(POD),
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-pod{}.slice/cri-containerd-{ID}.scope/system.slice/cron.service",
                    POD.replace('-', "_")
                ),
                Some((containerd, ID)),
                Some(POD),
            ),
            (format!("/kubepods/burstable/pod{POD}/{ID}"), Some((none, ID)), Some(POD)),
            (format!("/kubepods/pod{POD}/{ID}"), Some((none, ID)), Some(POD)),
            (format!("/kubepods/besteffort/pod{HASH}/{ID}"), Some((none, ID)), Some(HASH)),
            (format!("/kubepods/burstable/pod{POD}"), None, Some(POD)),
            (
                format!(
                    "/system.slice/containerd.service/kubepods-burstable-pod{}.slice:cri-containerd:{ID}",
                    POD.replace('-', "_")
                ),
                Some((containerd, ID)),
                Some(POD),
            ),
            (
                format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/docker-{ID}.scope"),
                Some((docker, ID)),
                Some(HASH),
            ),
            // containerd without Kubernetes.
            (format!("/system.slice/nerdctl-{ID}.scope"), Some((containerd, ID)), NONE),
            (format!("/default/{ID}"), Some((none, ID)), NONE),
            // CRI-O: a container, one with a cgroup of crun, one by cgroupfs, and its monitor.
            (
                format!(
                    "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/crio-{ID}.scope",
                    POD.replace('-', "_")
                ),
                Some((crio, ID)),
                Some(POD),
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-pod{}.slice/crio-{ID}.scope/container",
                    POD.replace('-', "_")
                ),
                Some((crio, ID)),
                Some(POD),
            ),
            (format!("/kubepods/burstable/pod{POD}/crio-{ID}"), Some((crio, ID)), Some(POD)),
            (
                format!("/kubepods.slice/kubepods-pod{}.slice/crio-conmon-{ID}.scope", POD.replace('-', "_")),
                None,
                Some(POD),
            ),
            // Podman: root, rootless, cgroupfs, in a unit, in a pod, and its monitor.
            (format!("/machine.slice/libpod-{ID}.scope/container"), Some((podman, ID)), NONE),
            (
                format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container"),
                Some((podman, ID)),
                NONE,
            ),
            (format!("/libpod_parent/libpod-{ID}"), Some((podman, ID)), NONE),
            (format!("/libpod_parent/{ID}"), Some((podman, ID)), NONE),
            (
                format!("/system.slice/web.service/libpod-payload-{ID}"),
                Some((podman, ID)),
                NONE,
            ),
            (
                format!("/machine.slice/machine-libpod_pod_{OTHER}.slice/libpod-{ID}.scope/container"),
                Some((podman, ID)),
                NONE,
            ),
            (format!("/machine.slice/libpod-conmon-{ID}.scope"), None, NONE),
            (format!("/machine.slice/libpod-{ID}.scope (deleted)"), Some((podman, ID)), NONE),
            // Amazon ECS.
            (format!("/ecs/{HASH}/{ID}"), Some((none, ID)), NONE),
            (format!("/ecs/{HASH}/{ecs}"), Some((none, ecs)), NONE),
            (
                format!("/ecstasks.slice/ecstasks-{HASH}.slice/docker-{ID}.scope"),
                Some((docker, ID)),
                NONE,
            ),
            // systemd-nspawn, and a virtual machine.
            (
                "/machine.slice/systemd-nspawn@deb\\x2d12.service/payload/init.scope".to_owned(),
                Some((nspawn, "deb\\x2d12")),
                NONE,
            ),
            ("/machine.slice/systemd-nspawn@deb.service/supervisor".to_owned(), None, NONE),
            (
                "/machine.slice/machine-deb.scope/payload/system.slice/cron.service".to_owned(),
                Some((nspawn, "deb")),
                NONE,
            ),
            ("/machine.slice/machine-deb.scope/supervisor".to_owned(), None, NONE),
            ("/machine.slice/machine-qemu\\x2d1\\x2dwin.scope/libvirt/emulator".to_owned(), None, NONE),
            // LXC, old and new, LXD, Proxmox, and a monitor.
            ("/lxc/web".to_owned(), Some((lxc, "web")), NONE),
            ("/lxc.payload/web/init.scope".to_owned(), Some((lxc, "web")), NONE),
            ("/lxc.payload.web/system.slice/cron.service".to_owned(), Some((lxc, "web")), NONE),
            ("/lxc.payload.project_web".to_owned(), Some((lxc, "project_web")), NONE),
            ("/lxc/101/ns/init.scope".to_owned(), Some((lxc, "101")), NONE),
            (format!("/lxc.payload.web/docker/{ID}"), Some((docker, ID)), NONE),
            ("/lxc.monitor.web".to_owned(), None, NONE),
            ("/lxc.monitor/web".to_owned(), None, NONE),
            // From another cgroup namespace.
            (format!("/../{ID}"), Some((none, ID)), NONE),
            (format!("/../../docker-{ID}.scope"), Some((docker, ID)), NONE),
            // No containers.
            ("/".to_owned(), None, NONE),
            ("/system.slice/docker.service".to_owned(), None, NONE),
            (format!("/system.slice/docker-{}.scope", &ID[1..]), None, NONE),
            (format!("/system.slice/docker-{}.scope", ID.to_uppercase()), None, NONE),
            ("/user.slice/user-1000.slice/session-3.scope".to_owned(), None, NONE),
            ("/system.slice/podman.service".to_owned(), None, NONE),
            ("/podium/0b2c3d4e".to_owned(), None, NONE),
        ] {
            let found = container(path.as_bytes());
            let told = found.map(|container| (container.runtime, std::str::from_utf8(container.id).unwrap()));
            assert_eq!(told, expected, "{path}");
            let is_name = found.is_some_and(|container| container.is_name);
            assert_eq!(is_name, told.is_some_and(|(runtime, _)| [nspawn, lxc].contains(&runtime)), "{path}");
            let uid = pod_uid(path.as_bytes()).map(|uid| {
                let mut text = Vec::new();
                pod_uid_text(uid, &mut text);
                String::from_utf8(text).unwrap()
            });
            assert_eq!(uid.as_deref(), pod, "{path}");
        }
    }

    /// Check who owns rootless containers.
    #[test]
    fn rootless_containers_have_owners() {
        assert_eq!(
            owner(b"/user.slice/user-1000.slice/user@1000.service/user.slice/x.scope"),
            Some(1000)
        );
        assert_eq!(owner(b"/machine.slice/x.scope"), None);
        assert_eq!(owner(b"/user-x.slice"), None);
    }

    /// Check that escapes are undone, and that text that only resembles one stays.
    #[test]
    fn names_are_unescaped() {
        for (name, expected) in [
            ("deb\\x2d12", "deb-12"),
            ("a\\x2", "a\\x2"),
            ("a\\y2d", "a\\y2d"),
            ("a\\xzz", "a\\xzz"),
            ("\\x41\\x42", "AB"),
            ("", ""),
        ] {
            let mut out = Vec::new();
            unescape(name.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{name}");
        }
    }

    proptest! {
        /// Check that any path can be parsed, and that each result is a part of it.
        #[test]
        fn any_path_is_looked_at(path in proptest::collection::vec(any::<u8>(), 0..80)) {
            let is_part = |part: &[u8]| part.is_empty() || path.windows(part.len()).any(|window| window == part);
            let found = [unit(&path), user_unit(&path), slice(&path), container(&path).map(|container| container.id), pod_uid(&path)];
            for part in found.into_iter().flatten() {
                prop_assert!(is_part(part));
            }
            let _ = owner(&path);
        }

        /// Check the same with paths that are nearly right.
        #[test]
        fn nearly_right_paths_are_looked_at(names in proptest::collection::vec(
            prop_oneof![
                "[a-z]{0,3}\\.(slice|scope|service)", "user@[0-9x]{0,2}\\.service", "lxc(\\.payload)?(\\.[a-z]?)?",
                "(docker-|libpod-)?[0-9a-f]{63,65}(\\.scope)?", "(kubepods-)?pod[0-9a-f_-]{31,37}(\\.slice)?", "\\.\\.", "payload",
                "machine-(\\\\x[0-9a-f]{0,2})?\\.scope",
            ],
            0..6,
        )) {
            let path = format!("/{}", names.join("/"));
            let _ = (unit(path.as_bytes()), user_unit(path.as_bytes()), slice(path.as_bytes()), owner(path.as_bytes()));
            if let Some(container) = container(path.as_bytes()) {
                prop_assert!(!container.id.is_empty());
                let mut name = Vec::new();
                unescape(container.id, &mut name);
                prop_assert!(!name.is_empty());
            }
            let _ = pod_uid(path.as_bytes());
        }
    }
}
