//! Cells of cgroups, and of the containers that they indicate.

use taskdiag::{Absent, Field, Value};
use taskdiag_core::cgroup::{self, Runtime};
use taskdiag_core::derived;

use super::Cell;

impl<'a> Cell<'a> {
    /// The lines of `/proc/PID/cgroup` but those of roots. A dash if there are no others.
    pub fn cgroup(&mut self) {
        let lines = match (self.value(Field::Cgroups), self.value(Field::Cgroup)) {
            (Ok(Value::Text(lines)), _) => lines.to_vec(),
            (_, Ok(Value::Text(path))) => [b"0::", path].concat(),
            _ => Vec::new(),
        };
        let lines = lines
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty() && !line.ends_with(b":/"));
        match lines.collect::<Vec<_>>().join(&b","[..]) {
            lines if lines.is_empty() => self.dash(),
            lines => self.plain(&lines),
        }
    }

    /// What the path of the task's cgroup tells, in the first hierarchy where it does.
    pub(super) fn of_cgroup<T>(&mut self, find: impl Fn(&'a [u8]) -> Option<T>) -> Option<T> {
        let task = self.task;
        let value = |field: Field| task.cell(field as usize).map_err(|_| Absent::Unsupported);
        derived::of_cgroup(value, value(Field::Cgroups).is_ok(), find)
            .ok()
            .flatten()
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
        let unit = self.of_cgroup(cgroup::unit);
        let machine = unit.and_then(|unit| self.host.sessions.machine(unit).map(<[u8]>::to_vec));
        self.text_or_dash(machine.as_deref());
    }
}
