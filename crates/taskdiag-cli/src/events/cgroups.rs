//! The cgroups of events. An event itself has only the id of its cgroup.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;

use taskdiag::{Absent, Event, Field, Fields, Handle, Query, Task, Value};
use taskdiag_core::cgroup::Runtime;
use taskdiag_core::derived::{derive, Context, Names};
use taskdiag_core::filter::HasFields;
use taskdiag_core::text::process::{cgroup_mounts, unescape};
use taskdiag_sys::host::proc_file;

use crate::outcome::Failure;

/// The field of a task's cgroup, and the fields derived from it alone.
pub fn in_cgroup() -> Fields {
    let follows = |field: &Field| field.info().made_of == [Field::Cgroup];
    let made_of_it = Field::ALL.iter().copied().filter(follows);
    made_of_it.chain([Field::Cgroup]).collect()
}

/// The values of [`in_cgroup`] for one cgroup.
#[derive(Debug)]
pub struct Cgroup(Vec<(Field, Result<Vec<u8>, Absent>)>);

impl Cgroup {
    fn new(value: impl Fn(Field) -> Result<Vec<u8>, Absent>) -> Cgroup {
        Cgroup(in_cgroup().iter().map(|field| (field, value(field))).collect())
    }

    /// The value of one of the fields.
    pub fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        let known = self.0.iter().find(|(known, _)| *known == field);
        let value = known.map_or(&Err(Absent::NotAsked), |(_, value)| value);
        value.as_deref().map(Value::Text).map_err(|&reason| reason)
    }

    fn of_task(task: &Task<'_>) -> Cgroup {
        Cgroup::new(|field| match task.value(field)? {
            Value::Text(text) => Ok(text.to_vec()),
            _ => Err(Absent::Unsupported),
        })
    }

    /// The values that the path gives. Names that container runtimes keep in their own files are
    /// unknown.
    fn of_path(path: &[u8]) -> Cgroup {
        let context = Context {
            now_ns: 0,
            boot_ns: 0,
            tick_ns: 0,
            memory_bytes: 0,
            has_cgroup1: true,
            part: None,
            names: &Nobody,
        };
        Cgroup::new(|field| {
            let mut value = Vec::new();
            match field {
                Field::Cgroup => value.extend_from_slice(path),
                field => derive(field, &InCgroup(path), &context, &mut value)?,
            }
            Ok(value)
        })
    }
}

/// A task of which only the path of its cgroup is known.
struct InCgroup<'a>(&'a [u8]);

impl HasFields for InCgroup<'_> {
    fn value(&self, field: Field) -> Result<Value<'_>, Absent> {
        match field {
            Field::Cgroup => Ok(Value::Text(self.0)),
            _ => Err(Absent::Gone),
        }
    }
}

/// Knows no names.
struct Nobody;

impl Names for Nobody {
    fn user(&self, _: u32) -> Result<&[u8], Absent> {
        Err(Absent::Gone)
    }

    fn group(&self, _: u32) -> Result<&[u8], Absent> {
        Err(Absent::Gone)
    }

    fn terminal(&self, _: u32) -> Result<&[u8], Absent> {
        Err(Absent::Gone)
    }

    fn container_runtime(&self, _: &[u8]) -> Result<Runtime, Absent> {
        Err(Absent::Gone)
    }

    fn container_name(&self, _: &[u8]) -> Result<&[u8], Absent> {
        Err(Absent::Gone)
    }
}

/// The maximum number of cgroups to remember. A busy machine may create one for each command.
const MAX_KNOWN: usize = 1 << 16;

/// The cgroups of events. The kernel never reuses a cgroup's id, and cgroups of the unified
/// hierarchy keep their names.
#[derive(Debug)]
pub struct Cgroups {
    handle: Handle,
    has_cgroup1: bool,
    /// `None` for cgroups that were gone before the lookup.
    known: HashMap<u64, Option<Cgroup>>,
}

impl Cgroups {
    /// No cgroup is known yet.
    pub fn new() -> Result<Cgroups, Failure> {
        let mut handle = Handle::new();
        handle.prepare(fields())?;
        Ok(Cgroups {
            handle,
            has_cgroup1: Handle::has_cgroup1(),
            known: HashMap::new(),
        })
    }

    /// Like [`Cgroups::new`], but any source may answer about processes.
    pub fn for_any_source() -> Cgroups {
        Cgroups {
            handle: Handle::new(),
            has_cgroup1: Handle::has_cgroup1(),
            known: HashMap::new(),
        }
    }

    /// The cgroup of an event. If it is not known yet, asks about the process; if the process has
    /// ended, searches the directories of all cgroups.
    pub fn of(&mut self, event: &Event<'_>) -> Option<&Cgroup> {
        let id = event.cgroup_id().ok()?;
        if self.has_cgroup1 {
            // Processes of one cgroup of the unified hierarchy are in different ones of others.
            self.known.clear();
        }
        if !self.known.contains_key(&id) {
            if self.known.len() == MAX_KNOWN {
                self.known.clear();
            }
            let found = self.ask(id, event.pid());
            let found = found.or_else(|| Some(Cgroup::of_path(&path_of(id)?)));
            self.known.insert(id, found);
        }
        self.known.get(&id)?.as_ref()
    }

    /// The values of a process, if the process is still in this cgroup.
    fn ask(&mut self, id: u64, pid: u32) -> Option<Cgroup> {
        let query = Query::process(pid).fields(fields());
        let found = self.handle.query(&query).ok()?;
        let task = found.tasks().next()?;
        (task.cgroup_id() == Ok(id)).then(|| Cgroup::of_task(&task))
    }
}

fn fields() -> Fields {
    in_cgroup() | Field::CgroupId
}

/// The path of the cgroup with this id, which is the inode of its directory. Reads in this file
/// system never block.
fn path_of(id: u64) -> Option<Vec<u8>> {
    let mounts = fs::read(proc_file("self/mountinfo")).ok()?;
    let mount = OsString::from_vec(unescape(cgroup_mounts(&mounts, None).next()?).collect());
    let mount = PathBuf::from(mount);
    if std::os::unix::fs::MetadataExt::ino(&mount.metadata().ok()?) == id {
        return Some(b"/".to_vec());
    }
    let mut left = vec![mount.clone()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        for entry in entries.filter_map(Result::ok).filter(is_directory) {
            if entry.ino() == id {
                let path = entry.path();
                let below = path.strip_prefix(&mount).ok()?;
                return Some([b"/", below.as_os_str().as_bytes()].concat());
            }
            left.push(entry.path());
        }
    }
    None
}
