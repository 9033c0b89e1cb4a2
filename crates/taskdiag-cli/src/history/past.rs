//! One sample of a recording, which the library can query instead of the kernel.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use taskdiag::{Absent, Error, ErrorKind, Past, Snapshot};
use taskdiag_core::cgroup::Runtime;
use taskdiag_core::derived::{self, Context};
use taskdiag_core::identity::{Identity, TICK_NS};
use taskdiag_history::decode::{number, Decoder, End};
use taskdiag_history::figures::{Figure, Figures};
use taskdiag_history::piece::Time;
use taskdiag_history::About;

use super::library::torn;
use super::span::{Life, Span};

/// The state of the machine at one sample.
#[derive(Debug)]
pub struct MachineState {
    /// When the sample was taken.
    pub time: Time,
    /// The description of the recording.
    pub about: About,
    /// Figures of the machine and of cgroups.
    pub figures: Figures,
    /// The period before the sample that is shown, if not the sample alone.
    pub span: Option<Span>,
    /// The names of users, groups and terminals, by what it is and its number.
    names: HashMap<(&'static str, u32), Vec<u8>>,
    /// The names and the runtimes of containers, by their ids.
    container_names: HashMap<Vec<u8>, Vec<u8>>,
    runtimes: HashMap<Vec<u8>, Runtime>,
}

impl MachineState {
    /// The state at the last sample that was read.
    fn new(decoder: &Decoder, span: Option<Span>) -> Result<MachineState, String> {
        let figures = decoder.figures().map_err(|damage| damage.to_string())?;
        let numbered = |object: &'static str| {
            let number = |key| std::str::from_utf8(key).ok()?.parse().ok();
            let named = texts(&figures, object);
            named.filter_map(move |(key, name)| Some(((object, number(key)?), name.to_vec())))
        };
        let names = ["user", "group", "terminal"].into_iter().flat_map(numbered).collect();
        let container_names = texts(&figures, "container_name");
        let container_names = container_names.map(|(id, name)| (id.to_vec(), name.to_vec())).collect();
        let runtimes = texts(&figures, "container_runtime").filter_map(|(id, name)| {
            let mut all = Runtime::ALL.into_iter();
            Some((id.to_vec(), all.find(|runtime| runtime.name().as_bytes() == name)?))
        });
        let runtimes = runtimes.collect();
        Ok(MachineState {
            time: decoder.time,
            about: decoder.about.clone(),
            names,
            container_names,
            runtimes,
            figures,
            span,
        })
    }

    /// When the machine booted, by the wall clock of this sample: nanoseconds since 1970.
    pub fn boot_ns(&self) -> i64 {
        self.time.wall_ns.saturating_sub_unsigned(self.time.boot_ns)
    }

    /// The memory of the machine; 0 if unknown.
    pub fn memory_bytes(&self) -> u64 {
        self.figure("context", "memory_bytes").unwrap_or(0)
    }

    /// What a process did in the period; `None` if the sample alone is shown.
    pub fn life(&self, process: Identity) -> Option<Life> {
        self.span.as_ref()?.life(process)
    }

    /// The numbers of an object, with their keys.
    pub fn numbers(&self, object: &str) -> Vec<(&[u8], u64)> {
        let number = |(key, figure)| match figure {
            &Figure::Number(number) => Some((key, number)),
            Figure::Text(_) => None,
        };
        of_object(&self.figures, object).filter_map(number).collect()
    }

    /// Looks up a number.
    pub fn figure(&self, object: &str, key: &str) -> Option<u64> {
        number(&self.figures, object.as_bytes(), key.as_bytes())
    }

    /// The name of a `user`, `group` or `terminal`, if known.
    pub fn name(&self, of: &'static str, number: u32) -> Option<&[u8]> {
        self.names.get(&(of, number)).map(Vec::as_slice)
    }
}

/// The texts among an object's figures.
fn texts<'f>(figures: &'f Figures, object: &str) -> impl Iterator<Item = (&'f [u8], &'f [u8])> + use<'f> {
    of_object(figures, object).filter_map(|(key, figure)| match figure {
        Figure::Text(text) => Some((key, &**text)),
        Figure::Number(_) => None,
    })
}

/// An object's figures, with their keys.
fn of_object<'f>(figures: &'f Figures, object: &str) -> impl Iterator<Item = (&'f [u8], &'f Figure)> + use<'f> {
    let first = (Arc::from(object.as_bytes()), Arc::from(&b""[..]));
    let object: Arc<[u8]> = Arc::clone(&first.0);
    figures
        .range(first..)
        .take_while(move |((of, _), _)| *of == object)
        .map(|((_, key), figure)| (&**key, figure))
}

impl derived::Names for MachineState {
    fn user(&self, uid: u32) -> Result<&[u8], Absent> {
        self.name("user", uid).ok_or(Absent::Unsupported)
    }

    fn group(&self, gid: u32) -> Result<&[u8], Absent> {
        self.name("group", gid).ok_or(Absent::Unsupported)
    }

    fn terminal(&self, device: u32) -> Result<&[u8], Absent> {
        self.name("terminal", device).ok_or(Absent::Unsupported)
    }

    fn container_runtime(&self, id: &[u8]) -> Result<Runtime, Absent> {
        self.runtimes.get(id).copied().ok_or(Absent::Unsupported)
    }

    fn container_name(&self, id: &[u8]) -> Result<&[u8], Absent> {
        let name = self.container_names.get(id).map(Vec::as_slice);
        name.ok_or(Absent::Unsupported)
    }
}

/// A recording at one of its samples, for a handle to query.
#[derive(Debug)]
pub struct Recorded {
    /// The decoder, at the sample that was read last.
    pub decoder: Decoder,
    /// The state of the machine at the sample.
    pub moment: Arc<MachineState>,
}

impl Recorded {
    /// Uses the last sample that was read, as the end of a period if one is given. Output stays about
    /// the present, until [`show`](Recorded::show).
    pub fn new(decoder: Decoder, span: Option<Span>) -> Result<Recorded, String> {
        let moment = Arc::new(MachineState::new(&decoder, span)?);
        Ok(Recorded { decoder, moment })
    }

    /// Makes this sample the subject of all further output.
    pub fn show(&self) {
        show(self.moment.clone());
    }

    /// Reads the next sample. Returns whether there is one.
    pub fn advance(&mut self) -> Result<bool, String> {
        let has_next = self.pass()?;
        if has_next {
            self.arrive()?;
        }
        Ok(has_next)
    }

    /// Reads the next sample, but makes only what the decoder has of it available, until
    /// [`arrive`](Recorded::arrive).
    pub fn pass(&mut self) -> Result<bool, String> {
        match self.decoder.advance() {
            Ok(None) => Ok(true),
            Ok(Some(End::Whole)) => Ok(false),
            Ok(Some(End::Torn(bytes))) => Err(torn(bytes)),
            Err(broken) => Err(broken.to_string()),
        }
    }

    /// Makes all of the last sample that was read available.
    pub fn arrive(&mut self) -> Result<(), String> {
        self.moment = Arc::new(MachineState::new(&self.decoder, None)?);
        Ok(())
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

/// The sample that all output is about; `None` means the present.
static SHOWN: RwLock<Option<Arc<MachineState>>> = RwLock::new(None);

/// Makes a sample the subject of all further output.
pub fn show(moment: Arc<MachineState>) {
    *SHOWN.write().unwrap_or_else(PoisonError::into_inner) = Some(moment);
}

/// The recorded sample that is shown. Clocks, names and the heads of documents refer to it,
/// wherever they are written.
pub fn shown() -> Option<Arc<MachineState>> {
    SHOWN.read().unwrap_or_else(PoisonError::into_inner).clone()
}
