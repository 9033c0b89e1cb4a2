//! A moment of a recording, as what the library asks instead of the kernel.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use taskdiag::{Absent, Error, ErrorKind, Past, Snapshot};
use taskdiag_core::cgroup::Runtime;
use taskdiag_core::derived::{self, Context};
use taskdiag_core::identity::{Identity, TICK_NS};
use taskdiag_history::decode::{number, Decoder, End};
use taskdiag_history::events::Happened;
use taskdiag_history::figures::{Figure, Figures};
use taskdiag_history::piece::Time;
use taskdiag_history::{About, Damage};

use super::between::{Life, Span};

/// A moment of a recording: what is said of the machine then.
#[derive(Debug)]
pub struct Moment {
    /// When it was.
    pub time: Time,
    /// What was recorded.
    pub about: About,
    /// Figures of the machine and of cgroups.
    pub figures: Figures,
    /// The time before it that is looked at, if that is not the moment alone.
    pub span: Option<Span>,
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    terminals: HashMap<u32, Vec<u8>>,
    containers: HashMap<Vec<u8>, Container>,
}

/// What was known of a container.
#[derive(Debug, Default)]
struct Container {
    runtime: Option<Runtime>,
    name: Option<Vec<u8>>,
}

impl Moment {
    /// The moment of the sample that was read last.
    pub fn new(decoder: &Decoder) -> Result<Moment, Damage> {
        let figures = decoder.figures()?;
        let numbered = |object: &str| {
            let named = texts(&figures, object);
            named.filter_map(|(key, name)| Some((std::str::from_utf8(key).ok()?.parse().ok()?, name.to_vec())))
        };
        let (users, groups) = (numbered("user").collect(), numbered("group").collect());
        let terminals = numbered("terminal").collect();
        let mut containers: HashMap<Vec<u8>, Container> = HashMap::new();
        for (id, name) in texts(&figures, "container_name") {
            containers.entry(id.to_vec()).or_default().name = Some(name.to_vec());
        }
        for (id, name) in texts(&figures, "container_runtime") {
            let runtime = RUNTIMES.into_iter().find(|runtime| runtime.name().as_bytes() == name);
            containers.entry(id.to_vec()).or_default().runtime = runtime;
        }
        Ok(Moment {
            time: decoder.time,
            about: decoder.about.clone(),
            users,
            groups,
            terminals,
            containers,
            figures,
            span: None,
        })
    }

    /// When the machine booted, by the clock of the moment: nanoseconds since 1970.
    pub fn boot_ns(&self) -> i64 {
        self.time.wall_ns.saturating_sub_unsigned(self.time.boot_ns)
    }

    /// The memory of the machine, 0 if it is not known.
    pub fn memory_bytes(&self) -> u64 {
        self.figure("context", "memory_bytes").unwrap_or(0)
    }

    /// What a process did in the time that is looked at; `None` if that is the moment alone.
    pub fn life(&self, process: Identity) -> Option<Life> {
        self.span.as_ref()?.life(process)
    }

    /// The numbers of an object, with their keys.
    pub fn numbers(&self, object: &str) -> Vec<(&[u8], u64)> {
        let first = (Arc::from(object.as_bytes()), Arc::from(&b""[..]));
        let of_object = self
            .figures
            .range(first..)
            .take_while(|((of, _), _)| **of == *object.as_bytes());
        of_object
            .filter_map(|((_, key), figure)| match figure {
                Figure::Number(number) => Some((&**key, *number)),
                Figure::Text(_) => None,
            })
            .collect()
    }

    /// A number.
    pub fn figure(&self, object: &str, key: &str) -> Option<u64> {
        number(&self.figures, object.as_bytes(), key.as_bytes())
    }

    /// The name of a user, if it was known.
    pub fn user(&self, uid: u32) -> Option<&[u8]> {
        self.users.get(&uid).map(Vec::as_slice)
    }

    /// The name of a group, if it was known.
    pub fn group(&self, gid: u32) -> Option<&[u8]> {
        self.groups.get(&gid).map(Vec::as_slice)
    }
}

const RUNTIMES: [Runtime; 6] = [
    Runtime::Docker,
    Runtime::Containerd,
    Runtime::CriO,
    Runtime::Podman,
    Runtime::Nspawn,
    Runtime::Lxc,
];

/// The texts among the figures of an object.
fn texts<'f>(figures: &'f Figures, object: &str) -> impl Iterator<Item = (&'f [u8], &'f [u8])> + use<'f> {
    let first = (Arc::from(object.as_bytes()), Arc::from(&b""[..]));
    let object: Arc<[u8]> = Arc::clone(&first.0);
    figures
        .range(first..)
        .take_while(move |((of, _), _)| *of == object)
        .filter_map(|((_, key), figure)| match figure {
            Figure::Text(text) => Some((&**key, &**text)),
            Figure::Number(_) => None,
        })
}

impl derived::Names for Moment {
    fn user(&self, uid: u32) -> Result<&[u8], Absent> {
        self.user(uid).ok_or(Absent::Unsupported)
    }

    fn group(&self, gid: u32) -> Result<&[u8], Absent> {
        self.group(gid).ok_or(Absent::Unsupported)
    }

    fn terminal(&self, device: u32) -> Result<&[u8], Absent> {
        self.terminals
            .get(&device)
            .map(Vec::as_slice)
            .ok_or(Absent::Unsupported)
    }

    fn container_runtime(&self, id: &[u8]) -> Result<Runtime, Absent> {
        self.containers
            .get(id)
            .and_then(|container| container.runtime)
            .ok_or(Absent::Unsupported)
    }

    fn container_name(&self, id: &[u8]) -> Result<&[u8], Absent> {
        let name = self.containers.get(id).and_then(|container| container.name.as_deref());
        name.ok_or(Absent::Unsupported)
    }
}

/// What a handle asks.
#[derive(Debug)]
pub struct Recorded {
    decoder: Decoder,
    moment: Arc<Moment>,
}

impl Recorded {
    /// The state before the first sample that is still to be read.
    pub fn quiet(decoder: Decoder) -> Result<Recorded, Damage> {
        let moment = Arc::new(Moment::new(&decoder)?);
        Ok(Recorded { decoder, moment })
    }

    /// Lets what is written from now on be about this moment.
    pub fn show(&self) {
        show(self.moment.clone());
    }

    /// The recording, to read on.
    pub fn into_decoder(self) -> Decoder {
        self.decoder
    }

    /// Reads the next sample.
    pub fn advance(&mut self) -> Result<Option<End>, String> {
        let end = self.pass()?;
        if end.is_none() {
            self.arrive()?;
        }
        Ok(end)
    }

    /// Reads the next sample, of which only what [happened](Recorded::happened) before it is asked, unless
    /// [`arrive`](Recorded::arrive) follows.
    pub fn pass(&mut self) -> Result<Option<End>, String> {
        self.decoder.advance().map_err(|broken| broken.to_string())
    }

    /// Makes the sample that was passed last the moment.
    pub fn arrive(&mut self) -> Result<(), String> {
        self.moment = Arc::new(Moment::new(&self.decoder).map_err(|damage| damage.to_string())?);
        Ok(())
    }

    /// What is being read.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// The moment of the sample.
    pub fn moment(&self) -> &Arc<Moment> {
        &self.moment
    }

    /// What happened before it.
    pub fn happened(&self) -> &Happened {
        &self.decoder.happened
    }

    /// The sample that was read last, as the end of a time.
    pub fn at_end(decoder: Decoder, span: Span) -> Result<Recorded, Damage> {
        let mut moment = Moment::new(&decoder)?;
        moment.span = Some(span);
        Ok(Recorded {
            decoder,
            moment: Arc::new(moment),
        })
    }

    /// The sample that was read last. What is written from now on is about that moment.
    pub fn new(decoder: Decoder) -> Result<Recorded, Damage> {
        let recorded = Recorded::quiet(decoder)?;
        recorded.show();
        Ok(recorded)
    }
}

impl Past for Recorded {
    fn read(&mut self, snapshot: &mut Snapshot) -> taskdiag::Result<()> {
        let read = self.decoder.tasks_into(&self.moment.figures, snapshot);
        read.map_err(|damage| Error::new(ErrorKind::Malformed, "reading the recording").caused_by(damage))
    }

    fn context(&self, process: Identity) -> Context<'_> {
        let life = self.moment.life(process);
        Context {
            now_ns: life.map_or(self.moment.time.boot_ns, |life| life.last_ns),
            part: life.map(|life| (life.before_ns[0], life.of_ns)),
            boot_ns: self.moment.boot_ns(),
            tick_ns: TICK_NS,
            memory_bytes: self.moment.memory_bytes(),
            has_cgroup1: self.moment.figure("context", "has_cgroup1") == Some(1),
            names: &*self.moment,
        }
    }
}

/// The moment that everything that is written is about; `None` if that is now.
static SHOWN: RwLock<Option<Arc<Moment>>> = RwLock::new(None);

/// Lets what is written from now on be about a moment.
pub fn show(moment: Arc<Moment>) {
    *SHOWN.write().unwrap_or_else(PoisonError::into_inner) = Some(moment);
}

/// The moment of a recording that is looked at. Clocks, names and the head of documents are of that
/// moment, wherever they are written.
pub fn shown() -> Option<Arc<Moment>> {
    SHOWN.read().unwrap_or_else(PoisonError::into_inner).clone()
}
