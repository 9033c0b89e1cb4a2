//! Check that a library without the feature `bpf` answers from procfs, and reports why no other
//! source answers.

use super::*;

#[test]
fn procfs_answers() {
    let mut handle = Handle::new();
    let snapshot = handle
        .query(&Query::process(std::process::id()).fields(Field::Comm | Field::RssBytes | Field::Cmdline))
        .expect("procfs answers");
    assert_eq!(snapshot.len(), 1);
    assert!(snapshot.task(0).rss_bytes() > Ok(0));
    assert!(snapshot.answers().all(|(_, answer)| answer == Ok(SourceId::Procfs)));
}

#[test]
fn support_says_what_was_not_built() {
    let mut handle = Handle::new();
    let fact = &handle.support().bpf_built;
    assert_eq!(fact.verdict, Verdict::No);
    assert_eq!(
        fact.sentence(),
        "built without the BPF programs (build it with the feature bpf)"
    );
}

#[test]
fn bpf_is_refused() {
    let mut handle = Handle::new();
    let error = handle.prepare(Field::Comm).expect_err("there are no programs");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    let mut handle = Handle::new().with_source(SourceId::Bpf);
    let error = handle
        .query(&Query::processes().fields(Field::Comm))
        .expect_err("there are no programs");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
    let error = Handle::new().prepare_maps().expect_err("there are no programs");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:#}");
}
