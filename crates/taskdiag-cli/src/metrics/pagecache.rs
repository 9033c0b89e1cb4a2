//! The page cache of chosen directories. A separate thread walks each, because a file system may
//! take long to answer.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{Quantity, Seen, Source, Totals, Walk};

use super::exposition::Single;
use super::families::{Kind, Number};
use super::template::label;
use crate::outcome::say;
use crate::rhythm::Rhythm;

/// The result of the last walk of a directory.
#[derive(Clone, Debug)]
struct LastWalk {
    totals: Totals,
    at: Instant,
    took: Duration,
}

#[derive(Debug)]
struct Directory {
    path: PathBuf,
    known: Mutex<Option<LastWalk>>,
}

/// The directories. The walking threads end with the program.
#[derive(Clone, Debug, Default)]
pub struct Directories(Arc<Vec<Directory>>);

impl Directories {
    /// Starts walking directories, each at most once per interval.
    pub fn begin(paths: Vec<PathBuf>, every: Duration) -> io::Result<Directories> {
        let of = |path| Directory {
            path,
            known: Mutex::new(None),
        };
        let directories = Directories(Arc::new(paths.into_iter().map(of).collect()));
        for index in 0..directories.0.len() {
            let all = directories.0.clone();
            thread::Builder::new().name("page-cache".to_owned()).spawn(move || {
                let mut rhythm = Rhythm::new(every);
                let mut last = None;
                loop {
                    let failure = walk(&all[index]).err().map(|error| format!("{error:#}"));
                    if let Some(failure) = failure.as_ref().filter(|_| failure != last) {
                        say(format_args!(
                            "--cache {failure}: no metrics of it, until it can be read"
                        ));
                    }
                    last = failure;
                    rhythm.wait();
                }
            })?;
        }
        Ok(directories)
    }

    /// The metrics.
    pub fn singles(&self) -> Vec<Single> {
        let source = Source::of_this_host();
        let mut singles: Vec<Single> = METRICS
            .iter()
            .map(|&(name, help, _)| Single {
                name,
                kind: Kind::Gauge,
                help,
                series: Vec::new(),
            })
            .collect();
        for directory in &*self.0 {
            let known = directory.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let Some(known) = known else { continue };
            let path = label(std::os::unix::ffi::OsStrExt::as_bytes(directory.path.as_os_str()));
            for (single, (.., value)) in singles.iter_mut().zip(METRICS) {
                let value = value(&known, source);
                let labels = vec![("directory", path.clone())];
                single.series.extend(value.map(|value| (labels, value)));
            }
        }
        singles.retain(|single| !single.series.is_empty());
        singles
    }
}

type Value = fn(&LastWalk, Source) -> Option<Number>;

/// The names, help texts and values of the metrics.
const METRICS: &[(&str, &str, Value)] = &[
    (
        "taskdiag_directory_files",
        "Regular files below the directory",
        |known, _| Some(Number::Whole(known.totals.sum.files)),
    ),
    (
        "taskdiag_directory_size_bytes",
        "Sizes of the files below the directory",
        |known, _| Some(Number::Whole(known.totals.sum.size_bytes)),
    ),
    (
        "taskdiag_directory_cached_bytes",
        "Page cache of the files below the directory",
        |known, source| quantity(known, source, Quantity::Cached),
    ),
    (
        "taskdiag_directory_dirty_bytes",
        "Dirty page cache of the files below the directory",
        |known, source| quantity(known, source, Quantity::Dirty),
    ),
    (
        "taskdiag_directory_missing_files",
        "Files below the directory whose page cache is not in the sum",
        |known, _| {
            let sum = known.totals.sum;
            Some(Number::Whole(sum.files - sum.answered + known.totals.failed))
        },
    ),
    (
        "taskdiag_directory_age_seconds",
        "Time since the directory was last walked to its end",
        |known, _| Some(Number::Real(known.at.elapsed().as_secs_f64())),
    ),
    (
        "taskdiag_directory_walk_seconds",
        "How long the last walk through the directory took",
        |known, _| Some(Number::Real(known.took.as_secs_f64())),
    ),
];

fn quantity(known: &LastWalk, source: Source, quantity: Quantity) -> Option<Number> {
    let usage = known.totals.sum.usage(source).ok()?;
    usage.bytes(quantity).ok().map(Number::Whole)
}

/// Walks a directory. If this fails, the previous result stays and ages.
fn walk(directory: &Directory) -> taskdiag::Result<()> {
    let began = Instant::now();
    let run = |path: &Path| {
        let walk = Walk::new().each_file(false).one_file_system(true).threads(1);
        walk.run(path, &mut Seen::default(), &AtomicBool::new(false), &mut |_| {
            ControlFlow::Continue(())
        })
    };
    let known = LastWalk {
        totals: run(&directory.path)?,
        at: Instant::now(),
        took: began.elapsed(),
    };
    *directory.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    Ok(())
}
