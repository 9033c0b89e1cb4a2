//! The contenders of the suite for memory maps.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{self, Read as _, Seek as _};

use blazesym::normalize::{Normalizer as Blazesym, UserOutput};
use blazesym::Pid;
use taskdiag::maps::{MapField, Normalizer, Perms};
use taskdiag::{Handle, SourceId};
use taskdiag_zoo::Animal;

use crate::tools::{self, Tools};
use crate::Result;

/// A contender. A run does all the work once.
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

/// A line of a maps file, as programs that parse the text represent it.
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

/// For each address, the line that contains it.
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

/// A handle of the library that uses this source, or chooses one.
fn handle(source: Option<SourceId>) -> Handle {
    match source {
        Some(source) => Handle::new().with_source(source),
        None => Handle::new(),
    }
}

/// Look-ups of mappings with their names, in an open file.
pub fn look_ups(animal: &Animal, addresses: &[u64]) -> Result<Vec<Contender>> {
    let pid = animal.pid as u32;
    let ours = |source: Option<SourceId>| -> Result<_> {
        let mut maps = handle(source).maps(pid)?;
        let addresses = addresses.to_vec();
        Ok(move || {
            let found = maps.at_each(&addresses, MapField::Name)?;
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
        contender("taskdiag ioctl", ours(Some(SourceId::Procmap))?),
        contender("taskdiag text", ours(Some(SourceId::Procfs))?),
        contender("taskdiag bpf", ours(Some(SourceId::Bpf))?),
    ])
}

/// Normalization, from the process id to places in files.
pub fn normalizers(animal: &Animal, addresses: &[u64]) -> Result<Vec<Contender>> {
    let pid = animal.pid as u32;
    let mut prepared = Normalizer::new().build_ids(false);
    prepared.prepare()?;
    let ours = |mut normalizer: Normalizer, source: Option<SourceId>| {
        let (mut handle, addresses) = (handle(source), addresses.to_vec());
        move || {
            let mut maps = handle.maps(pid)?;
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
        contender("taskdiag text", ours(new(false), Some(SourceId::Procfs))),
        contender("taskdiag text, build ids", ours(new(true), Some(SourceId::Procfs))),
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
    let ours = |source: Option<SourceId>| {
        let mut handle = handle(source);
        move || {
            let mut maps = handle.maps(pid)?;
            black_box(maps.list(Perms::EXEC, MapField::Name)?);
            Ok(())
        }
    };
    let mut loaded = handle(Some(SourceId::Bpf)).maps(pid)?;
    let text = move || {
        let mut lines = parse(&fs::read_to_string(format!("/proc/{pid}/maps"))?);
        lines.retain(|line| line.is_executable);
        black_box(lines);
        Ok(())
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag", ours(None)),
        contender("taskdiag ioctl", ours(Some(SourceId::Procmap))),
        contender("taskdiag text", ours(Some(SourceId::Procfs))),
        contender("taskdiag bpf, loaded", move || {
            black_box(loaded.list(Perms::EXEC, MapField::Name)?);
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
                // Processes that ended in between, and mappings that not even root may see.
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
        let mut handle = handle(Some(source));
        move || {
            black_box(handle.all_maps(Perms::EXEC, MapField::Name)?);
            Ok(())
        }
    };
    let cold = || {
        black_box(handle(Some(SourceId::Bpf)).all_maps(Perms::EXEC, MapField::Name)?);
        Ok(())
    };
    let taskdiag = tools.taskdiag()?;
    let command = |args: &'static [&'static str]| {
        let taskdiag = taskdiag.clone();
        move || tools::answer(&taskdiag, args)
    };
    Ok(vec![
        contender("text", text),
        contender("taskdiag bpf, loaded", ours(SourceId::Bpf)),
        contender("taskdiag bpf, with loading", cold),
        contender("taskdiag text", ours(SourceId::Procfs)),
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
