//! Which source tells of events. Pure: facts in, decision out.

use std::fmt;

use crate::error::{Error, Result};
use crate::support::{refusal_kind, Fact, Verdict};

/// Who tells of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// BPF programs on the scheduler's tracepoints.
    Bpf,
    /// The proc connector.
    Connector,
}

impl EventSource {
    /// The name, as `--source` takes it.
    pub fn name(self) -> &'static str {
        match self {
            EventSource::Bpf => "bpf",
            EventSource::Connector => "connector",
        }
    }
}

impl fmt::Display for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What can tell of events on this host.
#[derive(Clone, Debug)]
pub struct EventSupport {
    /// The caller can attach BPF programs to the tracepoints of fork, exec and exit.
    pub tracepoints: Fact,
    /// The proc connector sends the caller messages.
    pub connector: Fact,
}

impl EventSupport {
    /// All facts with their names, for a report.
    pub fn facts(&self) -> [(&'static str, &Fact); 2] {
        [
            ("event-tracepoints", &self.tracepoints),
            ("event-connector", &self.connector),
        ]
    }

    #[doc(hidden)]
    pub fn fact(&self, source: EventSource) -> &Fact {
        match source {
            EventSource::Bpf => &self.tracepoints,
            EventSource::Connector => &self.connector,
        }
    }

    #[doc(hidden)]
    pub fn set(&mut self, source: EventSource, fact: Fact) {
        match source {
            EventSource::Bpf => self.tracepoints = fact,
            EventSource::Connector => self.connector = fact,
        }
    }
}

/// The source to try: the forced one, else the tracepoints, which tell more and lose less, else the connector. What has been
/// tried in vain is a fact that says no.
pub fn plan(forced: Option<EventSource>, support: &EventSupport) -> Result<EventSource> {
    let is_possible = |source: &EventSource| support.fact(*source).verdict != Verdict::No;
    match forced {
        Some(source) if is_possible(&source) => Ok(source),
        Some(source) => {
            let fact = support.fact(source);
            let message = format!("the source {source} can't tell of events: {}", fact.sentence());
            Err(Error::new(refusal_kind(&[fact]), message))
        }
        None => [EventSource::Bpf, EventSource::Connector]
            .into_iter()
            .find(is_possible)
            .ok_or_else(|| {
                let EventSupport { tracepoints, connector } = support;
                let message = format!(
                    "nothing can tell of events: {}; {}",
                    tracepoints.sentence(),
                    connector.sentence()
                );
                Error::new(refusal_kind(&[tracepoints, connector]), message)
            }),
    }
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
        Fact::no("CAP_BPF is missing", "run as root")
    }

    fn lacking() -> Fact {
        Fact::no("this kernel has no connector", "")
    }

    /// Check that the tracepoints come first, and the connector only where they can't be had.
    #[test]
    fn tracepoints_come_first() {
        let choose = |tracepoints, connector| plan(None, &support(tracepoints, connector)).ok();
        assert_eq!(choose(untried(), untried()), Some(EventSource::Bpf));
        assert_eq!(choose(Fact::yes("tried"), Fact::yes("tried")), Some(EventSource::Bpf));
        assert_eq!(choose(untried(), lacking()), Some(EventSource::Bpf));
        assert_eq!(choose(denied(), untried()), Some(EventSource::Connector));
    }

    /// Check that a forced source is the only one that is tried, and that its refusal says why and what to do.
    #[test]
    fn a_forced_source_is_kept_to() {
        let choose = |forced, tracepoints, connector| plan(Some(forced), &support(tracepoints, connector));
        let chosen = choose(EventSource::Connector, Fact::yes("tried"), untried());
        assert_eq!(chosen.ok(), Some(EventSource::Connector));
        let error = choose(EventSource::Bpf, denied(), Fact::yes("tried")).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(
            error.to_string(),
            "the source bpf can't tell of events: CAP_BPF is missing (run as root)"
        );
        let error = choose(EventSource::Connector, Fact::yes("tried"), lacking()).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }

    /// Check that where nothing is possible both reasons are given.
    #[test]
    fn both_reasons_are_given() {
        let error = plan(None, &support(denied(), lacking())).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::Denied);
        let text = error.to_string();
        assert!(
            text.contains("CAP_BPF is missing (run as root)") && text.contains("no connector"),
            "{text}"
        );
    }
}
