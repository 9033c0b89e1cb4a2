//! Check the same as `parity.rs` for clients in their own namespaces and Landlock domains.

mod daemon;

use std::io;
use std::os::unix::process::CommandExt as _;

use taskdiag::{ErrorKind, Fields, Group, Handle, Query, Scope};
use taskdiag_protocol::wire::{attribute, show, Strategy};
use taskdiag_testkit::{
    child::{self, World},
    test_name,
};

use daemon::files::same_files;
use daemon::scene::{same_tasks, same_values, scene, sleep_here, targets, tasks, user, HIDEPID, USER};
use daemon::{handle, is_too_old};

/// Check clients in other pid and time namespaces: ids and times are relative to those, and the
/// clients see the tasks of their namespace and its descendants.
#[test]
fn pid_and_time_namespaces_are_the_clients() {
    let _scene = scene();
    let inside = |user| World {
        pid_namespace: true,
        proc: HIDEPID,
        user,
        ..World::default()
    };
    for (name, world) in [("root-inside", inside(None)), ("user-inside", inside(Some(USER)))] {
        child::run(test_name!(), name, world, || {
            let _children = [sleep_here(), sleep_here()];
            let mut broker = handle(&daemon::socket());
            assert_eq!(std::process::id(), 1);
            if is_too_old() {
                return check_refused(&mut broker);
            }
            let (before, seen, after) = (threads_here(), same_tasks(&mut broker), threads_here());
            // The library's reader threads come and go.
            assert!((before.min(after) + 2..=before.max(after) + 2).contains(&seen));
            assert!(same_values(&mut broker, Scope::Processes) >= 3);
            assert!(same_values(&mut broker, Scope::Threads) >= 3);
            assert!(same_values(&mut broker, Scope::Process(1)) == 1);
            assert!(same_values(&mut broker, Scope::ChildrenOf(1)) >= 2);
            // Two children with three descriptors each, compared twice.
            same_files([], 12);
            let error = broker.query(&Query::process(targets()[0])).expect_err("nobody there");
            assert_eq!(error.kind(), ErrorKind::NoSuchTask);
        });
    }
    let other_time = World {
        boottime_offset_s: 5000,
        ..user(USER, 0)
    };
    child::run(test_name!(), "time", other_time, || {
        let mut broker = handle(&daemon::socket());
        if is_too_old() {
            return check_refused(&mut broker);
        }
        same_tasks(&mut broker);
        assert!(same_values(&mut broker, Scope::Processes) >= 1);
        same_files(targets(), 9);
    });
}

/// Check that a client with another root directory, as each client here has, gets its mappings and
/// its command line together with paths.
#[test]
fn another_root_costs_nothing() {
    let _scene = scene();
    child::run(test_name!(), "user", user(USER, 0), || {
        let paths = 1 << (show::GROUPS_SHIFT + Group::Paths as u32);
        let asked = show::VMA | show::CMDLINE | paths;
        let connection = daemon::connect(&daemon::socket());
        let answer = connection
            .ask(asked, Strategy::One, std::process::id())
            .expect("an answer");
        let attributes = answer.iter().flat_map(|message| &message.attributes);
        let kinds: Vec<u16> = attributes.map(|(kind, _)| *kind).collect();
        for kind in [attribute::VMA, attribute::CMDLINE, attribute::RECORD] {
            assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
        }
    });
}

/// Check that this client is refused.
fn check_refused(broker: &mut Handle) {
    let error = broker.query(&Query::processes()).expect_err("a refusal");
    assert!(
        error.to_string().contains("can't tell what this process may see"),
        "{error}"
    );
}

fn threads_here() -> usize {
    std::fs::read_dir("/proc/self/task").expect("threads").count()
}

/// Runs `body` as [`child::run`] does, in a new user namespace in which its user is `inside`.
fn run_in_user_namespace(test: &str, name: &str, world: World, inside: u32, body: impl FnOnce()) {
    if child::part().is_some() {
        return child::run(test, name, world, body);
    }
    let outside = world.user.expect("a user");
    let mut command = child::command(test, name, world);
    // SAFETY: the child has one thread. It allocates, which libc allows after fork(2).
    unsafe {
        command.pre_exec(move || {
            if libc::unshare(libc::CLONE_NEWUSER) != 0 {
                return Err(io::Error::last_os_error());
            }
            let put = |path: &std::ffi::CStr, text: &[u8]| {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                let written = libc::write(file, text.as_ptr().cast(), text.len());
                libc::close(file);
                if written == text.len() as isize {
                    Ok(())
                } else {
                    Err(io::Error::last_os_error())
                }
            };
            // Otherwise its files in /proc would belong to root.
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
            let map = format!("{inside} {outside} 1\n");
            put(c"/proc/self/setgroups", b"deny")?;
            put(c"/proc/self/uid_map", map.as_bytes())?;
            put(c"/proc/self/gid_map", map.as_bytes())
        });
    }
    let output = command.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("---- {name}:\n{text}{}----", String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && text.contains(&format!("part {name} is done")),
        "{name} failed"
    );
}

/// Check clients in a user namespace: capabilities in it have no effect outside, and ids are those
/// that it maps.
#[test]
fn user_namespaces_are_the_clients() {
    let _scene = scene();
    for (name, world, inside) in [
        ("userns-root", user(USER, 0), 0),
        ("userns-user", user(USER, 0), 4321),
        (
            "userns-inside",
            World {
                pid_namespace: true,
                ..user(USER, 0)
            },
            0,
        ),
    ] {
        run_in_user_namespace(test_name!(), name, world, inside, || {
            let mut broker = handle(&daemon::socket());
            if name == "userns-inside" && is_too_old() {
                return check_refused(&mut broker);
            }
            let _child = sleep_here();
            same_tasks(&mut broker);
            assert!(same_values(&mut broker, Scope::Processes) >= 2);
            assert!(same_values(&mut broker, Scope::Threads) >= 2);
            same_files(targets(), 0);
            let own = broker
                .query(&Query::process(std::process::id()).fields(Fields::all()))
                .expect("itself");
            assert_eq!(own.task(0).uid(), Ok(inside));
        });
    }
}

/// Check that a client in a Landlock domain sees the tasks of its domain.
#[test]
fn landlock_domains_confine_clients() {
    let _scene = scene();
    child::run(test_name!(), "landlocked", user(USER, 0), || {
        let mut broker = handle(&daemon::socket());
        let before = tasks(&mut broker, Query::processes()).len();
        let _outside = sleep_here();
        assert!(same_tasks(&mut broker) >= before);
        enter_domain();
        let _inside = sleep_here();
        let mut inside = handle(&daemon::socket());
        // Its other thread is outside the domain. The broker does not know which of the two asks,
        // and answers neither.
        check_refused(&mut inside);
        assert!(before > 1);
    });
    // A client whose threads are all in a domain.
    let mut command = child::command(test_name!(), "in-domain", user(USER, 0));
    if child::part().is_some() {
        return child::run(test_name!(), "in-domain", user(USER, 0), || {
            let _inside = sleep_here();
            let mut broker = handle(&daemon::socket());
            same_tasks(&mut broker);
            assert_eq!(tasks(&mut broker, Query::processes()).len(), 2);
            same_files(targets(), 6);
            assert!(same_values(&mut broker, Scope::Processes) >= 2);
        });
    }
    // SAFETY: system calls only.
    unsafe {
        command.pre_exec(|| {
            enter_domain();
            Ok(())
        })
    };
    let output = command.output().expect("a second process");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("part in-domain is done"));
}

/// Enters a domain that forbids making block devices. Any domain also forbids tracing tasks outside
/// it.
fn enter_domain() {
    const MAKE_BLOCK: u64 = 1 << 11;
    // SAFETY: the ruleset's attribute is one number, and the descriptor belongs to this function.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let ruleset = libc::syscall(444, [MAKE_BLOCK].as_ptr(), 8_usize, 0_u32);
        assert!(ruleset >= 0, "this test needs Landlock");
        assert_eq!(libc::syscall(446, ruleset, 0_u32), 0);
        libc::close(ruleset as i32);
    }
}
