//! The contenders of the suite about memory maps.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read as _, Seek as _};

use blazesym::normalize::{Normalizer as Blazesym, UserOutput};
use blazesym::Pid;
use taskdiag::maps::{Filter, Machine, Maps, Normalizer, Source, Wants};
use taskdiag_zoo::Animal;

use crate::tools::{self, Tools};
use crate::Result;

/// A contender: does it all once.
pub struct Contender {
    pub name: &'static str,
    pub run: Box<dyn FnMut() -> Result<()>>,
}

fn contender(name: &'static str, run: impl FnMut() -> Result<()> + 'static) -> Contender {
    Contender {
        name,
        run: Box::new(run),
    }
}

/// A line of a maps file, as programs have it that read the text.
struct Line {
    start: u64,
    end: u64,
    is_executable: bool,
    offset: u64,
    name: String,
}

fn parse(text: &str) -> Vec<Line> {
    let line = |line: &str| {
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
    };
    text.lines().filter_map(line).collect()
}

/// For each address the line that it is in.
fn find<'a>(lines: &'a [Line], addresses: &[u64]) -> Vec<Option<&'a Line>> {
    let place = |address: &u64| {
        let next = lines.partition_point(|line| line.end <= *address);
        lines.get(next).filter(|line| line.start <= *address)
    };
    addresses.iter().map(place).collect()
}

fn all<T>(found: impl IntoIterator<Item = Option<T>>) -> Result<()> {
    if found.into_iter().all(|place| place.is_some()) {
        Ok(())
    } else {
        Err("an address was not found".into())
    }
}

/// Look-ups of mappings with their names, in a file that is open.
pub fn look_ups(animal: &Animal, addresses: &[u64]) -> Result<Vec<Contender>> {
    let pid = animal.pid as u32;
    let ours = |source: Option<Source>| -> Result<_> {
        let maps = Maps::open(pid)?;
        let mut maps = match source {
            Some(source) => maps.with_source(source),
            None => maps,
        };
        let addresses = addresses.to_vec();
        Ok(move || {
            let found = maps.at_each(&addresses, Wants::NAMES)?;
            all(found.places)
        })
    };
    let mut file = File::open(format!("/proc/{pid}/maps"))?;
    let sought = addresses.to_vec();
    let text = move || {
        let mut text = String::new();
        file.rewind()?;
        file.read_to_string(&mut text)?;
        all(find(&parse(&text), &sought))
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag", ours(None)?),
        contender("taskdiag ioctl", ours(Some(Source::Procmap))?),
        contender("taskdiag text", ours(Some(Source::Procfs))?),
        contender("taskdiag bpf", ours(Some(Source::Bpf))?),
    ])
}

/// Normalization from the number of a process to places in files.
pub fn normalizers(animal: &Animal, addresses: &[u64]) -> Result<Vec<Contender>> {
    let pid = animal.pid as u32;
    let mut prepared = Normalizer::new().build_ids(false);
    prepared.prepare()?;
    let ours = |mut normalizer: Normalizer, source: Option<Source>| {
        let addresses = addresses.to_vec();
        move || {
            let maps = Maps::open(pid)?;
            let mut maps = match source {
                Some(source) => maps.with_source(source),
                None => maps,
            };
            black_box(normalizer.normalize(&mut maps, &addresses)?);
            Ok(())
        }
    };
    let new = |build_ids| Normalizer::new().build_ids(build_ids);
    let sought = addresses.to_vec();
    let text = move || {
        let lines = parse(&fs::read_to_string(format!("/proc/{pid}/maps"))?);
        let places = find(&lines, &sought);
        let offsets = places.iter().zip(&sought).map(|(line, address)| {
            let line = (*line)?;
            Some((address - line.start + line.offset, line.name.as_str()))
        });
        all(black_box(offsets.collect::<Vec<_>>()))
    };
    let blazesym = |normalizer: Blazesym| {
        let addresses = addresses.to_vec();
        move || {
            let output: UserOutput<'_> = normalizer.normalize_user_addrs(Pid::from(pid), &addresses)?;
            black_box(output.outputs.len());
            Ok(())
        }
    };
    let built = |ioctl: bool, build_ids: bool, caching: bool| {
        let builder = Blazesym::builder();
        let builder = builder.enable_procmap_query(ioctl).enable_vma_caching(caching);
        builder
            .enable_build_ids(build_ids)
            .enable_build_id_caching(caching && build_ids)
            .build()
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag", ours(new(false), None)),
        contender("taskdiag, bpf loaded", ours(prepared, None)),
        contender("taskdiag, build ids", ours(new(true), None)),
        contender("taskdiag text", ours(new(false), Some(Source::Procfs))),
        contender("taskdiag text, build ids", ours(new(true), Some(Source::Procfs))),
        contender("blazesym text", blazesym(built(false, false, false))),
        contender("blazesym text, build ids", blazesym(built(false, true, false))),
        contender("blazesym ioctl", blazesym(built(true, false, false))),
        contender("blazesym ioctl, build ids", blazesym(built(true, true, false))),
        contender("blazesym text, cached", blazesym(built(false, false, true))),
        contender("blazesym ioctl, cached", blazesym(built(true, false, true))),
        contender("blazesym ioctl, build ids, cached", blazesym(built(true, true, true))),
    ])
}

/// The executable mappings of a process with their names.
pub fn lists(animal: &Animal) -> Result<Vec<Contender>> {
    let pid = animal.pid as u32;
    let ours = |source: Option<Source>| {
        move || {
            let maps = Maps::open(pid)?;
            let mut maps = match source {
                Some(source) => maps.with_source(source),
                None => maps,
            };
            black_box(maps.list(Filter::EXECUTABLE, Wants::NAMES)?);
            Ok(())
        }
    };
    let mut loaded = Maps::open(pid)?.with_source(Source::Bpf);
    let text = move || {
        let mut lines = parse(&fs::read_to_string(format!("/proc/{pid}/maps"))?);
        lines.retain(|line| line.is_executable);
        black_box(lines);
        Ok(())
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag", ours(None)),
        contender("taskdiag ioctl", ours(Some(Source::Procmap))),
        contender("taskdiag text", ours(Some(Source::Procfs))),
        contender("taskdiag bpf, loaded", move || {
            black_box(loaded.list(Filter::EXECUTABLE, Wants::NAMES)?);
            Ok(())
        }),
    ])
}

/// The executable mappings of all processes with their names.
pub fn machine(tools: &Tools) -> Result<Vec<Contender>> {
    let text = || {
        let mut mappings = 0;
        let mut text = String::new();
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            if !path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes()[0].is_ascii_digit())
            {
                continue;
            }
            text.clear();
            let read = File::open(path.join("maps")).and_then(|mut file| file.read_to_string(&mut text));
            match read {
                Ok(_) => {}
                // What ends meanwhile, and what even root may not see.
                Err(error) if is_expected(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut lines = parse(&text);
            lines.retain(|line| line.is_executable);
            mappings += lines.len();
            black_box(lines);
        }
        match mappings {
            0 => Err("no mappings".into()),
            _ => Ok(()),
        }
    };
    let ours = |source| {
        let mut machine = Machine::new().with_source(source);
        move || {
            black_box(machine.list(Filter::EXECUTABLE, Wants::NAMES)?);
            Ok(())
        }
    };
    let cold = || {
        black_box(
            Machine::new()
                .with_source(Source::Bpf)
                .list(Filter::EXECUTABLE, Wants::NAMES)?,
        );
        Ok(())
    };
    let taskdiag = tools.taskdiag()?;
    let command = |args: &'static [&'static str]| {
        let taskdiag = taskdiag.clone();
        move || tools::answer(&taskdiag, args)
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag bpf, loaded", ours(Source::Bpf)),
        contender("taskdiag bpf, with loading", cold),
        contender("taskdiag text", ours(Source::Procfs)),
        contender(
            "command: taskdiag maps --all --exec",
            command(&["maps", "--all", "--exec"]),
        ),
        contender(
            "command: taskdiag maps --all --exec --source procfs",
            command(&["maps", "--all", "--exec", "--source", "procfs"]),
        ),
    ])
}

fn is_expected(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH | libc::EACCES))
}
