//! Derived fields equal the output of other programs: ps(1), getent(1), date(1). `oracle.rs`
//! compares them with the text of `/proc`, for all tasks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use taskdiag::{Absent, Budget, Field, Fields, Filter, Group, Handle, Query, Snapshot, Task, Value};
use taskdiag_testkit::temporary::Killed;
use taskdiag_testkit::{animal, cgroup_mount, handle, SOURCES};
use taskdiag_zoo::Animal;

/// What a program prints.
fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    String::from_utf8(output.stdout).expect("ASCII")
}

/// The output of ps(1) about processes: a line of words for each.
fn ps(pids: &[u32], columns: &str) -> BTreeMap<u32, Vec<String>> {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    let text = output("ps", &["--no-headers", "-o", columns, "-p", &list.join(",")]);
    let lines = text.lines().map(|line| {
        let mut words = line.split_ascii_whitespace().map(str::to_owned);
        let pid = words.next().and_then(|pid| pid.parse().ok()).expect("a pid");
        (pid, words.collect())
    });
    lines.collect()
}

fn text(value: Result<&[u8], Absent>) -> Result<String, Absent> {
    value.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Animals that differ in the inputs of derived fields.
fn zoo() -> Vec<Animal> {
    let names = [
        "nice-7",
        "threads-5",
        "terminal",
        "ids-all-different",
        "zombie",
        "dead-leader",
        "stopped",
        "memory-locked",
    ];
    names.map(animal).into()
}

fn answer(handle: &mut Handle, pids: &[u32]) -> Snapshot {
    let fields = Fields::of_group(Group::Derived) | Field::StartNs | Field::State;
    handle
        .query(&Query::these(pids.iter().copied()).fields(fields))
        .expect("an answer")
}

/// Check that values that do not move equal those of ps(1), from each source.
#[test]
fn ps_shows_the_same() {
    let animals = zoo();
    // The children of one are in the foreground of their terminal.
    let children = animals
        .iter()
        .flat_map(|animal| animal.facts.children.clone().unwrap_or_default());
    let pids: Vec<u32> = animals
        .iter()
        .map(|animal| animal.pid)
        .chain(children)
        .map(|pid| pid as u32)
        .chain([2])
        .collect();
    let shown = ps(&pids, "pid,user:60,group:60,stat,tty:60,unit:60,uunit:60,slice:60");
    assert_eq!(shown.len(), pids.len());
    for source in SOURCES {
        let snapshot = answer(&mut handle(source), &pids);
        let mut letters = String::new();
        for task in snapshot.tasks() {
            let pid = task.pid().expect("a pid");
            // For a missing value, ps shows a mark.
            let or = |value: Result<&[u8], Absent>, mark: &str| match value {
                Ok(b"") | Err(Absent::Gone | Absent::Unsupported) => Ok(mark.to_owned()),
                value => text(value),
            };
            let ours = [
                text(task.user()),
                text(task.group()),
                text(task.stat()),
                or(task.tty(), "?"),
                or(task.unit(), "-"),
                or(task.user_unit(), "-"),
                or(task.slice(), "-"),
            ];
            let ours: Vec<String> = ours.into_iter().map(|value| value.expect("a value")).collect();
            assert_eq!(ours, shown[&pid], "{source} {pid}");
            letters.push_str(&ours[2]);
        }
        assert_eq!(snapshot.len(), pids.len());
        // Each kind occurs.
        for letter in "SZTNLsl+".chars() {
            assert!(letters.contains(letter), "{source}: {letter} of {letters}");
        }
        let has_terminal = |task: &Task<'_>| task.tty().is_ok_and(|tty| tty.starts_with(b"pts/"));
        assert!(snapshot.tasks().any(|task| has_terminal(&task)), "{source}");
    }
}

/// Check that values that move lie between those that ps(1) shows before and after, within its last
/// digit.
#[test]
fn ps_shows_what_moves() {
    let busy = Killed(
        Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("a shell"),
    );
    let animals = zoo();
    let pids: Vec<u32> = animals
        .iter()
        .map(|animal| animal.pid as u32)
        .chain([busy.0.id(), std::process::id()])
        .collect();
    let columns = "pid,pcpu,pmem,etimes";
    let number = |words: &[String], index: usize| words[index].parse::<f64>().expect("a number");
    for source in SOURCES {
        let mut handle = handle(source);
        let before = ps(&pids, columns);
        let snapshot = answer(&mut handle, &pids);
        let after = ps(&pids, columns);
        let mut busiest = 0.0_f64;
        for task in snapshot.tasks() {
            let pid = task.pid().expect("a pid");
            let (before, after) = (&before[&pid], &after[&pid]);
            let is_between = |ours: f64, index: usize, slack: f64| {
                let (a, b) = (number(before, index), number(after, index));
                assert!(
                    ours >= a.min(b) - slack && ours <= a.max(b) + slack,
                    "{source} {pid}: {ours} of {before:?} and {after:?}"
                );
            };
            let seconds = task.elapsed_ns().expect("a time") as f64 / 1e9;
            is_between(seconds, 2, 1.0);
            let percent = task.cpu_percent().expect("a percentage");
            // ps divides by whole seconds, of which there are few here.
            let short = number(before, 2).max(1.0);
            is_between(percent, 0, 0.1 + percent * (1.5 / short) + 100.0 * 0.02 / short);
            busiest = busiest.max(percent);
            match task.mem_percent() {
                Ok(percent) => is_between(percent, 1, 0.1),
                Err(reason) => assert_eq!((reason, number(before, 1)), (Absent::NoMemory, 0.0), "{source} {pid}"),
            }
        }
        assert!(busiest > 10.0, "{source}: nobody is busy");
    }
}

/// Check that the start equals that of ps(1), which knows the boot time only to the second.
#[test]
fn starts_are_those_of_ps() {
    let animals = zoo();
    let pids: Vec<u32> = animals.iter().map(|animal| animal.pid as u32).chain([2]).collect();
    let shown = ps(&pids, "pid,lstart");
    let seconds = |time: &str| -> i64 {
        let text = output("date", &["-u", "-d", time, "+%s"]);
        text.trim().parse().unwrap_or_else(|_| panic!("{time}"))
    };
    let mut starts = Vec::new();
    for source in SOURCES {
        let snapshot = answer(&mut handle(source), &pids);
        starts.push(snapshot.tasks().map(|task| text(task.start_time())).collect::<Vec<_>>());
        for task in snapshot.tasks() {
            let ours = text(task.start_time()).expect("a time");
            assert!(ours.len() == 20 && ours.ends_with('Z'), "{ours}");
            let of_ps = &shown[&task.pid().expect("a pid")].join(" ");
            let later = seconds(&ours) - seconds(&format!("{of_ps} UTC"));
            assert!((0..=1).contains(&later), "{source}: {ours} and {of_ps}");
        }
    }
    // Both sources report exactly the same.
    assert_eq!(starts[0], starts[1]);
    assert_eq!(starts[0].len(), pids.len());
}

/// Check that names equal those of the user database, and that ids without names are shown as
/// numbers.
#[test]
fn getent_knows_the_same_names() {
    let animals = ["ids-all-different", "nice-7"].map(animal);
    for source in SOURCES {
        let mut handle = handle(source);
        let fields = Field::User | Field::Group | Field::Euid | Field::Egid;
        let snapshot = handle.query(&Query::processes().fields(fields)).expect("an answer");
        let mut names = BTreeMap::new();
        for task in snapshot.tasks() {
            names.insert(("passwd", task.euid().expect("a user")), text(task.user()));
            names.insert(("group", task.egid().expect("a group")), text(task.group()));
        }
        for ((database, id), name) in &names {
            let line = output("getent", &[database, &id.to_string()]);
            let expected = match line.split_once(':') {
                Some((name, _)) => name.to_owned(),
                None => id.to_string(),
            };
            assert_eq!(name, &Ok(expected), "{source} {database} {id}");
        }
        assert_eq!(names[&("passwd", 0)], Ok("root".to_owned()));
        assert!(names.values().any(|name| name.as_deref() == Ok("1002")), "{names:?}");
        drop(snapshot);
        assert!(animals.iter().all(|animal| animal.pid > 0));
    }
}

/// Check that derived fields are not computed unless they are asked for: they have no values, and
/// cost no further fields.
#[test]
fn nobody_gets_what_was_not_asked() {
    let pid = std::process::id();
    for source in SOURCES {
        let mut handle = handle(source);
        let plain = handle
            .query(&Query::process(pid).fields(Field::Comm))
            .expect("an answer");
        assert_eq!(plain.task(0).user(), Err(Absent::NotAsked));
        let user = handle
            .query(&Query::process(pid).fields(Field::User))
            .expect("an answer");
        assert_eq!(user.task(0).user(), Ok(&b"root"[..]));
        assert_eq!(user.task(0).group(), Err(Absent::NotAsked));
        // The fields it is made of are in the answer, too.
        assert_eq!(user.task(0).euid(), Ok(0));
        let groups: Vec<Group> = user.answers().map(|(group, _)| group).collect();
        assert_eq!(groups, [Group::Cred]);
    }
}

/// Check that a filter may use derived fields: alone, with others, and with rollups, which are read
/// only for the remaining tasks.
#[test]
fn filters_look_at_derived_fields() {
    let animals = ["nice-7", "threads-5", "ids-all-different", "terminal"].map(animal);
    let list: Vec<u32> = animals.iter().map(|animal| animal.pid as u32).collect();
    let among = |expression: &str| {
        let words: Vec<String> = list.iter().map(u32::to_string).collect();
        let text = format!("pid in ({}) and ({expression})", words.join(", "));
        Filter::parse(&text).unwrap_or_else(|error| panic!("{error}"))
    };
    for source in SOURCES {
        let mut handle = handle(source);
        let mut chosen = |expression: &str, fields: Fields| {
            let query = Query::processes()
                .fields(fields)
                .filter(among(expression))
                .budget(Budget::UNLIMITED);
            let snapshot = handle.query(&query).expect("an answer");
            let counters = snapshot.counters();
            assert_eq!(counters.tasks, snapshot.len() as u64);
            let pids: Vec<u32> = snapshot.tasks().map(|task| task.pid().expect("a pid")).collect();
            (pids, counters.walked + counters.unchanged)
        };
        let none = Field::Pid.into();
        let only = |index: usize| vec![list[index]];
        assert_eq!(chosen("user == '1002'", none).0, only(2), "{source}");
        assert_eq!(chosen("stat ~ 'l' and threads_count > 1", none).0, only(1), "{source}");
        assert_eq!(chosen("tty ~ '^pts/'", none).0, only(3), "{source}");
        assert_eq!(
            chosen("elapsed_ns > 30d or start_time < '2020-01-01'", none).0,
            [0; 0],
            "{source}"
        );
        assert_eq!(chosen("nice == 7 or user == '1002'", none).0.len(), 2, "{source}");
        let (pids, walked) = chosen("stat ~ 'l'", Field::PssBytes.into());
        assert_eq!((pids, walked), (only(1), 1), "{source}");
        let (pids, walked) = chosen("stat ~ 'l' and pss_bytes > 1", none);
        assert_eq!((pids, walked), (only(1), 1), "{source}");
        assert_eq!(chosen("stat ~ 'l' and pss_bytes < 1", none).0, [0; 0], "{source}");
        assert_eq!(chosen("user == '1002' or pss_bytes < 1", none).0, only(2), "{source}");
    }
}

/// A process in a cgroup of its own. The cgroups are removed when this is dropped.
struct Member {
    process: Option<Killed>,
    cgroups: Vec<PathBuf>,
}

impl Member {
    /// Starts a process in `path` below `top`, both of which are made.
    fn new(top: &Path, path: &str) -> Member {
        let process = Command::new("sleep").arg("1000").spawn().expect("a process");
        let mut member = Member {
            process: Some(Killed(process)),
            cgroups: Vec::new(),
        };
        let mut at = top.to_owned();
        for name in std::iter::once("").chain(path.split('/')) {
            at.push(name);
            match fs::create_dir(&at) {
                Ok(()) => member.cgroups.push(at.clone()),
                Err(error) => assert!(at.is_dir(), "{}: {error}", at.display()),
            }
        }
        fs::write(at.join("cgroup.procs"), member.pid().to_string()).expect("a move into a cgroup");
        member
    }

    fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, |process| process.0.id())
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.process.take());
        // A cgroup counts as busy for a moment after its last process was reaped. Cgroups shared
        // with others are removed by the last of them.
        let deadline = Instant::now() + Duration::from_secs(2);
        for cgroup in self.cgroups.iter().rev() {
            while fs::remove_dir(cgroup).is_err() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Check processes in cgroups like those of systemd and container runtimes, from each source, and
/// that filters find them: in the unified hierarchy, and in those of version 1 that are mounted.
#[test]
fn cgroups_tell_units_and_containers() {
    let of_version_1 = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/memory"];
    let of_version_1 = of_version_1.map(PathBuf::from).into_iter();
    let mounts = cgroup_mount().into_iter().chain(of_version_1);
    let mounts: Vec<PathBuf> = mounts.filter(|mount| mount.join("cgroup.procs").exists()).collect();
    println!("hierarchies: {mounts:?}");
    for mount in mounts {
        check_cgroups(&mount);
    }
}

fn check_cgroups(mount: &Path) {
    const ID: &str = "3f4a1c0d5b6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f708";
    let top_slice = format!("tdtest{}.slice", std::process::id());
    let top = mount.join(&top_slice);
    let [docker, cri, podman] = ["docker", "cri-containerd", "libpod"].map(|prefix| format!("{prefix}-{ID}.scope"));
    let pod_slice = "kubepods-pod0b2c3d4e_1f2a_4b3c_8d4e_5f6a7b8c9d0e.slice";
    let pod = "0b2c3d4e-1f2a-4b3c-8d4e-5f6a7b8c9d0e";
    let machine = "machine-a\\x2db.scope";
    let (slice, user) = (top_slice.as_str(), "user@1000.service");
    // The path, and: unit, user_unit, slice, container_id, container_runtime, pod_uid.
    let cases = [
        (docker.clone(), [docker.as_str(), "", slice, ID, "docker", ""]),
        (
            format!("{pod_slice}/{cri}"),
            [cri.as_str(), "", pod_slice, ID, "containerd", pod],
        ),
        (
            format!("user-1000.slice/{user}/user.slice/{podman}/container"),
            [user, podman.as_str(), "user-1000.slice", ID, "podman", ""],
        ),
        ("lxc.payload.web".to_owned(), ["", "", slice, "web", "lxc", ""]),
        (
            format!("{machine}/payload/system.slice"),
            [machine, "", slice, "a-b", "systemd-nspawn", ""],
        ),
        ("cron.service".to_owned(), ["cron.service", "", slice, "", "", ""]),
    ];
    // The first one makes the top, and so is dropped last.
    let mut members: Vec<Member> = cases.iter().map(|(path, _)| Member::new(&top, path)).collect();
    let fields = [
        Field::Unit,
        Field::UserUnit,
        Field::Slice,
        Field::ContainerId,
        Field::ContainerRuntime,
        Field::PodUid,
    ];
    let pids: Vec<u32> = members.iter().map(Member::pid).collect();
    for source in SOURCES {
        let mut handle = handle(source);
        for (pid, (path, values)) in pids.iter().zip(&cases) {
            let snapshot = answer(&mut handle, &[*pid]);
            let task = snapshot.task(0);
            for (field, expected) in fields.into_iter().zip(values) {
                let value = task.value(field);
                assert_eq!(value, Ok(Value::Text(expected.as_bytes())), "{source} {path} {field}");
            }
            let name = text(task.container_name());
            match values[4] {
                "lxc" | "systemd-nspawn" => assert_eq!(name, Ok(values[3].to_owned()), "{source} {path}"),
                "" => assert_eq!(name.as_deref(), Ok(""), "{source} {path}"),
                // No runtime has such a container.
                _ => assert_eq!(name, Err(Absent::Unsupported), "{source} {path}"),
            }
        }
        for (expression, expected) in [
            (format!("container_id == '{ID}'"), &pids[..3]),
            (
                format!("container_runtime == 'lxc' and slice == '{slice}'"),
                &pids[3..4],
            ),
            (
                "container_name == 'a-b' and container_id == container_name".to_owned(),
                &pids[4..5],
            ),
            (format!("pod_uid == '{pod}' and unit != ''"), &pids[1..2]),
            (format!("user_unit == '{podman}'"), &pids[2..3]),
            (format!("slice == '{slice}' and unit == 'cron.service'"), &pids[5..]),
        ] {
            let filter = Filter::parse(&expression).unwrap_or_else(|error| panic!("{error}"));
            let query = Query::processes().fields(Field::Pid).filter(filter);
            let snapshot = handle.query(&query).expect("an answer");
            let found: Vec<u32> = snapshot.tasks().map(|task| task.pid().expect("a pid")).collect();
            assert_eq!(found, expected, "{source}: {expression}");
        }
    }
    while members.pop().is_some() {}
    assert!(!top.exists(), "{} is left", top.display());
}
