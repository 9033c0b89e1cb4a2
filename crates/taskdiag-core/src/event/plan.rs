//! Chooses the source of events: a pure function of facts.

use crate::error::Result;
use crate::plan::choose;
use crate::support::{Fact, Verdict};

crate::named_enum! {
    /// A source of events.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum EventSource {
        /// BPF programs on the scheduler's tracepoints (Linux 5.17).
        Bpf => "bpf",
        /// The proc connector (`CONFIG_PROC_EVENTS`).
        Connector => "connector",
    }
    /// All sources. Sources with more fields come first.
    pub const ALL;
    /// The name, as in reports: `bpf`, `connector`.
    pub fn name;
    impl Display;
}

/// Which sources of events work on this host. `Default` knows nothing.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct EventSupport {
    /// The caller can attach BPF programs to the tracepoints of fork, exec and exit.
    pub tracepoints: Fact,
    /// The caller receives messages of the proc connector.
    pub connector: Fact,
}

impl EventSupport {
    /// Whether `source` works.
    pub fn fact(&self, source: EventSource) -> &Fact {
        match source {
            EventSource::Bpf => &self.tracepoints,
            EventSource::Connector => &self.connector,
        }
    }

    /// Sets whether `source` works.
    pub fn set(&mut self, source: EventSource, fact: Fact) {
        match source {
            EventSource::Bpf => self.tracepoints = fact,
            EventSource::Connector => self.connector = fact,
        }
    }
}

/// The source to try next: the forced one; else the tracepoints, which have more fields and lose
/// fewer events; else the connector. A source that was tried and failed has a fact that says no.
pub fn plan(forced: Option<EventSource>, support: &EventSupport) -> Result<EventSource> {
    let candidates = EventSource::ALL.map(|source| match support.fact(source) {
        fact if fact.verdict == Verdict::No => (source, Err(fact)),
        _ => (source, Ok(0)),
    });
    choose("deliver events", forced, &candidates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn support(tracepoints: Fact, connector: Fact) -> EventSupport {
        EventSupport { tracepoints, connector }
    }

    fn untried() -> Fact {
        Fact::unknown("not tried yet")
    }

    fn denied() -> Fact {
        Fact::denied("CAP_BPF is missing", "run as root")
    }

    fn missing() -> Fact {
        Fact::no("this kernel has no connector", "")
    }

    /// Check that the tracepoints are tried first, and the connector only where they do not work.
    #[test]
    fn tracepoints_come_first() {
        let choose = |tracepoints, connector| plan(None, &support(tracepoints, connector)).ok();
        assert_eq!(choose(untried(), untried()), Some(EventSource::Bpf));
        assert_eq!(choose(Fact::yes("tried"), Fact::yes("tried")), Some(EventSource::Bpf));
        assert_eq!(choose(untried(), missing()), Some(EventSource::Bpf));
        assert_eq!(choose(denied(), untried()), Some(EventSource::Connector));
    }

    /// Check that only a forced source is tried, and that the error says why it does not work and
    /// what to do.
    #[test]
    fn only_a_forced_source_is_tried() {
        let choose = |forced, tracepoints, connector| plan(Some(forced), &support(tracepoints, connector));
        let chosen = choose(EventSource::Connector, Fact::yes("tried"), untried());
        assert_eq!(chosen.ok(), Some(EventSource::Connector));
        let error = choose(EventSource::Bpf, denied(), Fact::yes("tried")).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "the source bpf can't deliver events: CAP_BPF is missing (run as root)"
        );
        let error = choose(EventSource::Connector, Fact::yes("tried"), missing()).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    /// Check that the error gives both reasons if neither source works.
    #[test]
    fn both_reasons_are_given() {
        let error = plan(None, &support(denied(), missing())).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let text = error.to_string();
        assert!(
            text.contains("CAP_BPF is missing (run as root)") && text.contains("no connector"),
            "{text}"
        );
    }
}
