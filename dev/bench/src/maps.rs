//! Memory maps: look-ups, normalization, lists of one process and of all.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read as _, Seek as _};

use blazesym::normalize::{Normalizer as Blazesym, UserOutput};
use blazesym::Pid;
use taskdiag::maps::{MapField, Normalizer, Perms};
use taskdiag::{Handle, SourceId};
use taskdiag_zoo::{Farm, Zoo};

use crate::case::{call, timed, times, whole, Case, Contender, Context, Stage, Target};
use crate::loops;
use crate::{Result, Sizes};

/// The numbers of mappings of the examined processes.
const SIZES: [usize; 3] = [300, 5_000, 40_000];

/// The number of processes whose mappings are all listed.
const PROCESSES: usize = 2_000;

#[rustfmt::skip]
pub fn cases(sizes: &Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    let elsewhere = |is_here: bool, place: &str, target| Target { elsewhere: (!is_here).then(|| place.to_owned()), ..target };
    let text = "times as fast as the text";
    for size in SIZES {
        let case = |what: String| Case::new(format!("{what} {size} mappings"), move || stage(size));
        for (batch, what, least) in [(1, "one address", 100.0), (64, "64 addresses", 40.0)] {
            cases.push(case(format!("Look-up of {what} in")).of(look_ups(batch), vec![
                elsewhere(size == 5_000, "at 5000", times(text, "text", "taskdiag", least)),
            ]));
            cases.push(case(format!("Normalization of {what} in")).of(normalizers(batch), vec![
                elsewhere(size == 300, "at 300", times(text, "text", "taskdiag", 5.0)),
                times("times as fast as blazesym's ioctl", "blazesym ioctl", "taskdiag", 1.0),
                times("with build ids, times as fast as blazesym's ioctl", "blazesym ioctl, build ids", "taskdiag, build ids", 1.0),
            ]));
        }
        cases.push(case("Executable mappings of a process with".into()).of(lists(), vec![times(text, "text", "taskdiag", 1.0)]));
    }
    let processes = sizes.or(&[PROCESSES])[0];
    let title = format!("Executable mappings of all processes, {processes} of them idle");
    let all = Case::new(title, move || Ok(Stage::default().keep(Farm::start(processes, 1)?)));
    cases.push(all.of(machine(), vec![times(text, "text", "taskdiag bpf, loaded", 5.0)]));
    cases
}

/// A process with this many mappings.
fn stage(size: usize) -> Result<Stage> {
    let animal = Zoo::new()?.with_mappings(size)?;
    Ok(Stage::default().subject(animal.pid).keep(animal))
}

/// This many addresses in the executable file mappings of the process, spread and unordered; several
/// per mapping if there are too few.
fn addresses(pid: u32, count: usize) -> Result<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut starts = parse(&text);
    starts.retain(|line| line.is_executable && line.name.starts_with('/'));
    let len = starts.len();
    if len == 0 {
        return Err("the process has no executable file mapping".into());
    }
    let address = |index: usize| {
        let place = if count < len { index * len / count } else { index % len };
        starts[place].start + (index / len) as u64 + 16
    };
    let mut addresses: Vec<u64> = (0..count).map(address).collect();
    // The same order every time.
    addresses.sort_by_key(|address| address.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Ok(addresses)
}

/// A line of a maps file, as programs that parse the text represent it.
struct Line {
    start: u64,
    end: u64,
    is_executable: bool,
    offset: u64,
    name: String,
}

fn parse(text: &str) -> Vec<Line> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Line> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let perms = words.next()?;
    let offset = words.next()?;
    let (_device, _inode, name) = (words.next()?, words.next()?, words.next()?);
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_executable: perms.as_bytes().get(2) == Some(&b'x'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        name: name.trim_start().to_owned(),
    })
}

/// For each address, the line that contains it.
fn find<'a>(lines: &'a [Line], addresses: &[u64]) -> Vec<Option<&'a Line>> {
    let place = |address: &u64| {
        let next = lines.partition_point(|line| line.end <= *address);
        lines.get(next).filter(|line| line.start <= *address)
    };
    addresses.iter().map(place).collect()
}

fn all<T>(found: impl IntoIterator<Item = Option<T>>) -> Result<usize> {
    if found.into_iter().all(|place| place.is_some()) {
        Ok(0)
    } else {
        Err("an address was not found".into())
    }
}

/// A handle of the library that uses this source, or chooses one.
fn handle(source: Option<SourceId>) -> Handle {
    source.map_or_else(Handle::new, |source| Handle::new().with_source(source))
}

/// Look-ups of mappings with their names, in an open file.
#[rustfmt::skip]
fn look_ups(batch: usize) -> Vec<Contender> {
    let ours = |name, source| {
        call(name, "", move |context: &Context| {
            let (pid, mut handle) = (context.number(0)?, handle(source));
            let (mut maps, addresses) = (handle.maps(pid)?, addresses(pid, batch)?);
            timed(move || all(maps.at_each(&addresses, MapField::Name)?.places))
        })
    };
    let text = move |context: &Context| {
        let addresses = addresses(context.number(0)?, batch)?;
        let mut file = File::open(format!("/proc/{}/maps", context.subject))?;
        timed(move || {
            let mut text = String::new();
            file.rewind()?;
            file.read_to_string(&mut text)?;
            all(find(&parse(&text), &addresses))
        })
    };
    vec![
        call("text", "", text),
        ours("taskdiag", None),
        ours("taskdiag bpf", Some(SourceId::Bpf)),
    ]
}

/// Normalization, from the process id to places in files.
#[rustfmt::skip]
fn normalizers(batch: usize) -> Vec<Contender> {
    let ours = |name, is_prepared: bool, build_ids| {
        call(name, "", move |context: &Context| {
            let (pid, mut handle) = (context.number(0)?, Handle::new());
            let (mut normalizer, addresses) = (Normalizer::new().build_ids(build_ids), addresses(pid, batch)?);
            if is_prepared {
                normalizer.prepare()?;
            }
            timed(move || {
                black_box(normalizer.normalize(&mut handle.maps(pid)?, &addresses)?);
                Ok(0)
            })
        })
    };
    let text = move |context: &Context| {
        let pid = context.number(0)?;
        let addresses = addresses(pid, batch)?;
        timed(move || {
            let lines = parse(&fs::read_to_string(format!("/proc/{pid}/maps"))?);
            let places = find(&lines, &addresses);
            let offsets = places.iter().zip(&addresses).map(|(line, address)| {
                let line = (*line)?;
                Some((address - line.start + line.offset, line.name.as_str()))
            });
            all(black_box(offsets.collect::<Vec<_>>()))
        })
    };
    let blazesym = |name, ioctl, build_ids, caching| {
        call(name, "", move |context: &Context| {
            let pid = context.number(0)?;
            let addresses = addresses(pid, batch)?;
            let builder = Blazesym::builder().enable_procmap_query(ioctl).enable_vma_caching(caching);
            let normalizer = builder.enable_build_ids(build_ids).build();
            timed(move || {
                let output: UserOutput<'_> = normalizer.normalize_user_addrs(Pid::from(pid), &addresses)?;
                black_box(output.outputs.len());
                Ok(0)
            })
        })
    };
    vec![
        call("text", "", text),
        ours("taskdiag", false, false),
        ours("taskdiag, bpf loaded", true, false),
        ours("taskdiag, build ids", false, true),
        blazesym("blazesym text", false, false, false),
        blazesym("blazesym ioctl", true, false, false),
        blazesym("blazesym ioctl, build ids", true, true, false),
        blazesym("blazesym ioctl, cached", true, false, true),
    ]
}

/// The executable mappings of a process with their names.
#[rustfmt::skip]
fn lists() -> Vec<Contender> {
    let text = |context: &Context| {
        let path = format!("/proc/{}/maps", context.subject);
        timed(move || {
            let mut lines = parse(&fs::read_to_string(&path)?);
            lines.retain(|line| line.is_executable);
            Ok(black_box(lines).len())
        })
    };
    let new = |context: &Context| {
        let (pid, mut handle) = (context.number(0)?, Handle::new());
        timed(move || Ok(black_box(handle.maps(pid)?.list(Perms::EXEC, MapField::Name)?).len()))
    };
    let loaded = |context: &Context| {
        let mut maps = handle(Some(SourceId::Bpf)).maps(context.number(0)?)?;
        timed(move || Ok(black_box(maps.list(Perms::EXEC, MapField::Name)?).len()))
    };
    vec![call("text", "", text), call("taskdiag", "", new), call("taskdiag bpf, loaded", "", loaded)]
}

/// The executable mappings of all processes with their names.
#[rustfmt::skip]
fn machine() -> Vec<Contender> {
    let text = |_: &Context| {
        let mut buffer = vec![0; 256 << 10];
        timed(move || {
            let mut found = Vec::new();
            let mut keep = |line: &[u8]| {
                let line = std::str::from_utf8(line).ok().and_then(parse_line);
                found.extend(line.filter(|line| line.is_executable));
            };
            loops::each_process(|proc, pid| loops::each_line(proc, pid, "maps", &mut buffer, &mut keep).map(drop))?;
            Ok(black_box(found).len())
        })
    };
    let ours = |name, source, is_loaded: bool| {
        call(name, "", move |_| {
            let mut kept = handle(Some(source));
            timed(move || {
                if !is_loaded {
                    kept = handle(Some(source));
                }
                black_box(kept.all_maps(Perms::EXEC, MapField::Name)?);
                Ok(0)
            })
        })
    };
    vec![
        call("text", "", text),
        ours("taskdiag bpf, loaded", SourceId::Bpf, true),
        ours("taskdiag bpf, with loading", SourceId::Bpf, false),
        ours("taskdiag text", SourceId::Procfs, true),
        whole("taskdiag maps --all --exec"),
        whole("taskdiag maps --all --exec --source procfs"),
    ]
}
