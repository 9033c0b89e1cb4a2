//! Mapped files: build ids, places in files, and files of other mount namespaces.

use super::*;

/// The smallest program that has a build id.
fn elf(id: &[u8]) -> Vec<u8> {
    elf_with(id, true)
}

/// A program with a build id in a segment, or, as Go's linker writes it, in a section alone.
fn elf_with(id: &[u8], has_segment: bool) -> Vec<u8> {
    let mut header = vec![0_u8; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16..18].copy_from_slice(&2_u16.to_le_bytes());
    header[20..24].copy_from_slice(&1_u32.to_le_bytes());
    header[32..40].copy_from_slice(&64_u64.to_le_bytes());
    header[52..54].copy_from_slice(&64_u16.to_le_bytes());
    header[54..56].copy_from_slice(&56_u16.to_le_bytes());
    header[56..58].copy_from_slice(&1_u16.to_le_bytes());
    header[40..48].copy_from_slice(&2048_u64.to_le_bytes());
    header[58..60].copy_from_slice(&64_u16.to_le_bytes());
    header[60..62].copy_from_slice(&2_u16.to_le_bytes());
    let len = 16 + id.len() as u64;
    let mut segment = vec![0_u8; 56];
    segment[..4].copy_from_slice(&if has_segment { 4_u32 } else { 1 }.to_le_bytes());
    segment[8..16].copy_from_slice(&120_u64.to_le_bytes());
    segment[32..40].copy_from_slice(&len.to_le_bytes());
    segment[40..48].copy_from_slice(&len.to_le_bytes());
    segment[48..56].copy_from_slice(&4_u64.to_le_bytes());
    let mut note = Vec::new();
    for word in [4_u32, id.len() as u32, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(id);
    let mut file = [header, segment, note].concat();
    file.resize(4096, 0);
    let section = &mut file[2048 + 64..];
    section[4..8].copy_from_slice(&7_u32.to_le_bytes());
    section[24..32].copy_from_slice(&120_u64.to_le_bytes());
    section[32..40].copy_from_slice(&len.to_le_bytes());
    section[48..56].copy_from_slice(&4_u64.to_le_bytes());
    file
}

fn build_id(maps: &mut Maps, address: u64) -> Result<Option<BuildId>, Absent> {
    let found = maps.at(address, Filter::default(), MapField::Name | MapField::BuildId);
    found.expect("an answer").expect("a mapping").build_id
}

/// Check that a file that was replaced or rewritten never gets the build id that was remembered
/// before, and that a deleted file still has its own.
#[test]
fn build_ids_are_those_of_the_mapped_file() {
    let scratch = Directory::new("maps-ids");
    let path = scratch.join("program");
    let (first, second, third) = ([1; 20], [2; 20], [3; 20]);
    for source in sources() {
        fs::write(&path, elf(&first)).expect("a file");
        let mut maps = maps(std::process::id(), source);
        let old = Mapped::of(&fs::File::open(&path).expect("the file"), 4096, libc::PROT_READ);
        assert_eq!(build_id(&mut maps, old.address()), Ok(BuildId::new(&first)), "{source}");

        // Rewritten in place, at once.
        fs::write(&path, elf(&second)).expect("a file");
        assert_eq!(
            build_id(&mut maps, old.address()),
            Ok(BuildId::new(&second)),
            "{source}"
        );

        // Replaced: the path leads to another file now.
        let other = scratch.join("other");
        fs::write(&other, elf(&third)).expect("a file");
        fs::rename(&other, &path).expect("renaming");
        let new = Mapped::of(&fs::File::open(&path).expect("the file"), 4096, libc::PROT_READ);
        assert_eq!(build_id(&mut maps, new.address()), Ok(BuildId::new(&third)), "{source}");
        // Root can follow the kernel's link to the old file. Others can't, and must not read the
        // new one.
        let expected = if is_root() || source == SourceId::Procmap {
            Ok(BuildId::new(&second))
        } else {
            Err(Absent::Denied)
        };
        assert_eq!(build_id(&mut maps, old.address()), expected, "{source}");

        // Remembered: changed long ago.
        let long_ago = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
        fs::File::options()
            .write(true)
            .open(&path)
            .expect("the file")
            .set_times(long_ago)
            .expect("it is ours");
        assert_eq!(build_id(&mut maps, new.address()), Ok(BuildId::new(&third)), "{source}");

        // A file without a build id, which is not ELF.
        fs::write(&path, vec![b'#'; 4096]).expect("a file");
        assert_eq!(build_id(&mut maps, new.address()), Ok(None), "{source}");
    }
}

/// Check build ids that the kernel does not find: in a section that no segment covers, and longer
/// than 20 bytes. One that is too long to be kept is not said to be none.
#[test]
fn build_ids_are_found_where_the_kernel_finds_none() {
    let scratch = Directory::new("maps-other-ids");
    let id: Vec<u8> = (1..=64).collect();
    for (name, len, has_segment) in [
        ("section", 20, false),
        ("longer", 21, true),
        ("sha-256", 32, true),
        ("sha-512", 64, false),
    ] {
        let path = scratch.join(name);
        fs::write(&path, elf_with(&id[..len], has_segment)).expect("a file");
        let mapped = Mapped::of(&fs::File::open(&path).expect("the file"), 4096, libc::PROT_READ);
        let expected = match len {
            64 => Err(Absent::Truncated),
            _ => Ok(BuildId::new(&id[..len])),
        };
        assert_ne!(expected, Ok(None));
        for source in sources() {
            let mut maps = maps(std::process::id(), source);
            assert_eq!(build_id(&mut maps, mapped.address()), expected, "{source} {name}");
            let normalized = Normalizer::new().normalize(&mut maps, &[mapped.address()]);
            assert_eq!(
                normalized.expect("an answer").files[0].build_id,
                expected,
                "{source} {name}"
            );
        }
        let all = Handle::new().all_maps(Filter::default(), MapField::Name | MapField::BuildId);
        let all = all.expect("mappings").mappings;
        let own = all
            .iter()
            .find(|each| each.pid == Some(std::process::id()) && each.start == mapped.address());
        assert_eq!(own.expect("the mapping").build_id, expected, "{name}");
    }
}

/// Check that sources that must read files find the same build ids as the kernel, including that of
/// the vdso.
#[test]
fn build_ids_are_the_same_from_everywhere() {
    // Only root can read a deleted file.
    let zoo = animal(if is_root() { "exe-deleted" } else { "threads-5" });
    for pid in [std::process::id(), zoo.pid as u32] {
        let ids: Vec<BTreeMap<u64, Option<BuildId>>> = sources()
            .into_iter()
            .map(|source| {
                let listed = maps(pid, source)
                    .list(Perms::EXEC, MapField::Name | MapField::BuildId)
                    .expect("mappings");
                let ids = listed.iter().map(|mapping| {
                    let id = mapping
                        .build_id
                        .unwrap_or_else(|reason| panic!("{source} {mapping:?}: {reason}"));
                    (mapping.start, id)
                });
                ids.collect()
            })
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{pid}: {ids:?}");
        assert!(
            ids[0].values().flatten().count() >= 2,
            "{pid}: libc and the vdso have one at least: {ids:?}"
        );
    }
}

/// Check that addresses become places in files, or have a reason, whichever source answers.
#[test]
fn addresses_are_normalized() {
    let animal = animal("mappings");
    let known = known(&animal);
    let by_name = |part: &str| {
        let found = known
            .iter()
            .find(|known| known.4.escape_ascii().to_string().contains(part));
        found.unwrap_or_else(|| panic!("{part}"))
    };
    let (gone, alive, split) = (by_name("gone for"), by_name("alive (deleted)"), by_name("two lines"));
    let anonymous = known.iter().find(|known| known.2 == "rwxp").expect("anonymous memory");
    let lines = text(&format!("/proc/{}/maps", animal.pid));
    let vdso = lines
        .iter()
        .find(|line| line.name.as_deref() == Ok("[vdso]"))
        .expect("a vdso")
        .range
        .0;
    let vvar = lines
        .iter()
        .find(|line| line.name.as_deref() == Ok("[vvar]"))
        .expect("kernel data")
        .range
        .0;
    let addresses = [
        anonymous.0 + 1,
        split.0 + 0x2007,
        gone.0 + 5,
        vdso + 64,
        alive.0,
        0x1000,
        split.0,
        vvar,
        0xffff_ffff_ff60_0000,
        gone.1 - 1,
    ];
    for source in sources() {
        let mut maps = maps(animal.pid as u32, source);
        let normalized = Normalizer::new().normalize(&mut maps, &addresses).expect("an answer");
        assert_eq!(normalized.source, source);
        let path = |known: &(u64, u64, String, u64, Vec<u8>), suffix: &[u8]| {
            known
                .4
                .strip_suffix(suffix)
                .unwrap_or(&known.4)
                .escape_ascii()
                .to_string()
        };
        let shown = |outcome: &Outcome| match outcome {
            Outcome::InFile { file, offset } => {
                let file = &normalized.files[*file];
                let path = file.path.as_ref().expect("a name").escape_ascii();
                format!("{path}+{offset:#x}{}", if file.deleted { " deleted" } else { "" })
            }
            Outcome::Vdso { offset, build_id } => {
                assert!(matches!(build_id, Ok(Some(_))), "{source}: {build_id:?}");
                format!("vdso+{offset:#x}")
            }
            other => format!("{other:?}"),
        };
        let ours: Vec<String> = normalized.outcomes.iter().map(shown).collect();
        let gone_path = path(gone, b" (deleted)");
        let expected = [
            "Anonymous".to_owned(),
            format!("{}+0x4007", path(split, b"")),
            format!("{gone_path}+0x1005 deleted"),
            "vdso+0x40".to_owned(),
            format!("{}+0x0", path(alive, b"")),
            "Unmapped".to_owned(),
            format!("{}+0x2000", path(split, b"")),
            "Special".to_owned(),
            "Special".to_owned(),
            format!("{gone_path}+0x2fff deleted"),
        ];
        assert_eq!(ours, expected, "{source}");
        assert_eq!(normalized.files.len(), 3);
        for file in &normalized.files {
            // The kernel finds none, but it may be wrong, and only root can read a deleted file.
            let is_denied = file.deleted && !is_root();
            let expected = if is_denied { Err(Absent::Denied) } else { Ok(None) };
            assert!(file.inode != 0 && file.build_id == expected, "{source}: {file:?}");
        }
    }
}

/// The loaded objects of this process, by the dynamic linker: what it adds to their addresses, and
/// where their code begins and ends.
fn objects() -> Vec<(u64, u64, u64)> {
    unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, objects: *mut libc::c_void) -> i32 {
        // SAFETY: the linker passes a valid structure and headers, and our own pointer.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<(u64, u64, u64)>>()) };
        // SAFETY: as above.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers {
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
                let start = info.dlpi_addr + header.p_vaddr;
                objects.push((info.dlpi_addr, start, start + header.p_filesz));
            }
        }
        0
    }
    let mut objects = Vec::new();
    // SAFETY: `add` takes the pointer for what it is.
    unsafe { libc::dl_iterate_phdr(Some(add), std::ptr::from_mut(&mut objects).cast()) };
    objects
}

/// Check that places in files have the addresses that their symbols have, and the segment; and that
/// other files, and places behind the last byte of a segment, have none.
#[test]
fn places_have_the_addresses_of_their_symbols() {
    let functions = [objects as *const () as u64, libc::getpid as *const () as u64];
    let objects = objects();
    let expected = functions.map(|address| {
        let object = objects.iter().find(|(_, start, end)| (start..end).contains(&&address));
        let (added, start, _) = object.expect("an object");
        (address - added, start - added)
    });
    assert_ne!(expected[0].0, functions[0], "the reason for this test");
    let scratch = Directory::new("maps-segments");
    let path = scratch.join("text");
    fs::write(&path, vec![b'#'; 4096]).expect("a file");
    let other = Mapped::of(&fs::File::open(&path).expect("the file"), 4096, libc::PROT_READ);
    let addresses = [functions[0], other.address(), functions[1]];
    for source in sources() {
        let normalize = |segments: bool| {
            let mut normalizer = Normalizer::new().segments(segments);
            let normalized = normalizer.normalize(&mut maps(std::process::id(), source), &addresses);
            let normalized = normalized.expect("an answer");
            let outcomes = normalized.outcomes.clone();
            outcomes
                .into_iter()
                .map(move |outcome| match outcome {
                    Outcome::InFile { file, offset } => normalized.files[file].elf_address(offset),
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        let found: Vec<_> = normalize(true)
            .into_iter()
            .map(|found| {
                found
                    .expect("its segments")
                    .map(|(address, segment)| (address, segment.address))
            })
            .collect();
        assert_eq!(found, [Some(expected[0]), None, Some(expected[1])], "{source}");
        assert_eq!(normalize(false), [Err(Absent::NotAsked); 3], "{source}");
    }
}

/// Check that the names of files in another mount namespace are the kernel's, and that a path there
/// does not count as one here.
#[test]
fn other_mount_namespaces_are_seen_from_here() {
    let animal = animal("all-namespaces");
    let exe = fs::read_link(format!("/proc/{}/exe", animal.pid)).expect("its executable");
    for source in sources() {
        let listed = maps(animal.pid as u32, source)
            .list(Perms::EXEC, MapField::Name | MapField::BuildId)
            .expect("mappings");
        let own = listed.iter().find(|mapping| {
            mapping
                .name
                .is_ok_and(|name| Path::new(std::ffi::OsStr::from_bytes(name)) == exe)
        });
        assert!(own.is_some(), "{source}: {exe:?} among {:?}", common(&listed));
        assert!(listed.iter().all(|mapping| mapping.build_id.is_ok()), "{source}");
    }
}
