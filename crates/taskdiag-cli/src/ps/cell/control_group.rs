//! Cells of cgroups, and of the containers that they indicate.

use taskdiag::{Field, Value};
use taskdiag_core::cgroup::{self, Runtime};

use super::Cell;

impl<'a> Cell<'a> {
    /// The cgroup in the unified hierarchy, as in `/proc/PID/cgroup`. A dash stands for the root.
    pub fn cgroup(&mut self) {
        match self.value(Field::Cgroup) {
            Ok(Value::Text(path)) if path != b"/" && !path.is_empty() => {
                self.out.extend_from_slice(b"0::");
                self.plain(path);
            }
            _ => self.dash(),
        }
    }

    pub(super) fn cgroup_path(&mut self) -> &'a [u8] {
        match self.value(Field::Cgroup) {
            Ok(Value::Text(path)) => path,
            _ => b"",
        }
    }

    /// Whether the task's container has this runtime.
    fn has_runtime(&mut self, runtime: Runtime) -> bool {
        self.value(Field::ContainerRuntime) == Ok(Value::Text(runtime.name().as_bytes()))
    }

    /// The name of an LXC container.
    pub fn lxc(&mut self) {
        if self.has_runtime(Runtime::Lxc) {
            self.text(Field::ContainerName);
        } else {
            self.dash();
        }
    }

    /// The first twelve digits of the id of a Docker container.
    pub fn docker(&mut self) {
        match (self.has_runtime(Runtime::Docker), self.value(Field::ContainerId)) {
            (true, Ok(Value::Text(id))) => self.plain(&id[..id.len().min(12)]),
            _ => self.dash(),
        }
    }

    /// The virtual machine or container that is registered with systemd.
    pub fn machine(&mut self) {
        let unit = cgroup::unit(self.cgroup_path());
        let machine = unit.and_then(|unit| self.host.sessions.machine(unit).map(<[u8]>::to_vec));
        self.text_or_dash(machine.as_deref());
    }
}
