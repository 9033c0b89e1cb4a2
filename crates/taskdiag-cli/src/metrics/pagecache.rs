//! The page cache of chosen directories. A separate thread walks each, because a file system may
//! take long to answer.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use taskdiag::pagecache::{Quantity, Seen, Source, Totals, Walk};

use super::exposition::Single;
use super::families::{whole, Kind, Number};
use super::own::singles;
use super::template::label;
use crate::outcome::{lock, say};
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
        let mut all: [Option<Single>; METRICS] = [const { None }; METRICS];
        for directory in &*self.0 {
            let Some(known) = lock(&directory.known).clone() else {
                continue;
            };
            let path = label(std::os::unix::ffi::OsStrExt::as_bytes(directory.path.as_os_str()));
            for (single, mut one) in all.iter_mut().zip(known.metrics(source)) {
                let series = one.iter_mut().flat_map(|one| &mut one.series);
                series.for_each(|(labels, _)| labels.push(("directory", path.clone())));
                match (single, one) {
                    (Some(single), Some(one)) => single.series.extend(one.series),
                    (single @ None, one) => *single = one,
                    (Some(_), None) => {}
                }
            }
        }
        all.into_iter().flatten().collect()
    }
}

/// How many metrics a directory has.
const METRICS: usize = 7;

impl LastWalk {
    /// The metrics of the directory, with those that are not known.
    fn metrics(&self, source: Source) -> [Option<Single>; METRICS] {
        let Totals { sum, failed, .. } = self.totals;
        let bytes = |quantity| whole(sum.usage(source).ok()?.bytes(quantity).ok()?);
        let age = Number::Real(self.at.elapsed().as_secs_f64());
        let took = Number::Real(self.took.as_secs_f64());
        singles! {
            Gauge "taskdiag_directory_files", "Regular files below the directory" => whole(sum.files);
            Gauge "taskdiag_directory_size_bytes", "Sizes of the files below the directory" => whole(sum.size_bytes);
            Gauge "taskdiag_directory_cached_bytes", "Page cache of the files below the directory" =>
                bytes(Quantity::Cached);
            Gauge "taskdiag_directory_dirty_bytes", "Dirty page cache of the files below the directory" =>
                bytes(Quantity::Dirty);
            Gauge "taskdiag_directory_missing_files",
                "Files below the directory whose page cache is not in the sum" =>
                whole(sum.files - sum.answered + failed);
            Gauge "taskdiag_directory_age_seconds", "Time since the directory was last walked to its end" => Some(age);
            Gauge "taskdiag_directory_walk_seconds", "How long the last walk through the directory took" => Some(took);
        }
    }
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
    *lock(&directory.known) = Some(known);
    Ok(())
}
