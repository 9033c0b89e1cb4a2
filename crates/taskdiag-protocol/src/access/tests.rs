use taskdiag_core::record::{Header, Writer};
use zerocopy::native_endian::{U32, U64};
use zerocopy::IntoBytes as _;

use super::*;

const USER: u32 = 1000;

fn subject(user: u32, capabilities: u64) -> Subject {
    Subject {
        pid: 1,
        own: OwnProcess::of(&of(user)),
        fsuid: user,
        fsgid: user,
        euid: user,
        capabilities,
        user_ns: INITIAL_USER_NS,
        user_ns_level: 0,
        landlock: 0,
        hidden_pid: 0,
        confined: false,
        counts_files: false,
        may_attach: true,
    }
}

fn of(user: u32) -> Access {
    let [id, ns] = [user, INITIAL_USER_NS].map(U32::new);
    Access {
        uid: id,
        euid: id,
        suid: id,
        fsuid: id,
        gid: id,
        egid: id,
        sgid: id,
        fsgid: id,
        mm: U64::new(1),
        user_ns: ns,
        mm_user_ns: ns,
        dumpable: U32::new(dumpable::USER),
        flags: U32::new(ACCESS_STABLE),
        ..Access::default()
    }
}

fn sight(subject: &Subject, pid: u32, access: &Access, outward: &[(u32, u32)]) -> Option<Sight> {
    sight_with_memory(subject, pid, access, outward, &[])
}

/// The same for a task whose address space belongs to another user namespace.
fn sight_with_memory(
    subject: &Subject,
    pid: u32,
    access: &Access,
    outward: &[(u32, u32)],
    of_memory: &[(u32, u32)],
) -> Option<Sight> {
    let bytes = bytes(pid, access, outward, of_memory);
    let (record, _) = Record::split_first(&bytes).unwrap();
    subject.sight(&Object::of(record).unwrap())
}

/// The bytes of a record.
fn bytes(pid: u32, access: &Access, outward: &[(u32, u32)], of_memory: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.put(attr::ACCESS, 0, access.as_bytes());
    for (kind, list) in [(attr::USER_NS, outward), (attr::MM_USER_NS, of_memory)] {
        let list: Vec<u32> = list.iter().flat_map(|&(inode, owner)| [inode, owner]).collect();
        if kind == attr::USER_NS || !list.is_empty() {
            writer.put(kind, 0, list.as_bytes());
        }
    }
    writer.finish(Header {
        pid: U32::new(pid),
        ..Header::default()
    });
    bytes
}

fn sees(subject: &Subject, access: &Access) -> bool {
    sight(subject, 2, access, &[]).is_some()
}

/// Check that each of the six ids must match, and that file-system ids of the task do not matter.
#[test]
fn all_six_ids_must_match() {
    let user = subject(USER, 0);
    assert!(sees(&user, &of(USER)));
    let fields: [fn(&mut Access) -> &mut U32; 6] = [
        |access| &mut access.uid,
        |access| &mut access.euid,
        |access| &mut access.suid,
        |access| &mut access.gid,
        |access| &mut access.egid,
        |access| &mut access.sgid,
    ];
    for field in fields {
        let mut access = of(USER);
        *field(&mut access) = U32::new(0);
        assert!(!sees(&user, &access), "{access:?}");
        assert!(sees(&subject(USER, CAP_SYS_PTRACE), &access));
    }
    let mut access = of(USER);
    access.fsuid = U32::new(0);
    assert!(sees(&user, &access));
    // Root without capabilities is an ordinary user.
    assert!(!sees(&subject(0, 0), &of(USER)));
}

/// Check that capabilities have the numbers of capabilities(7).
#[test]
fn capabilities_are_the_kernels() {
    let ours = [CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_SYS_NICE];
    assert_eq!(ours, [0x2, 0x4, 0x8_0000, 0x80_0000]);
}

/// Check that the owner of the outermost user namespace is found.
#[test]
fn namespaces_have_owners() {
    let child = Access {
        user_ns: U32::new(12),
        user_ns_level: U32::new(2),
        ..of(100_000)
    };
    for (access, outward, owner) in [
        (child, &[(12, 100_000), (11, USER)][..], Some(USER)),
        (of(7), &[], None),
    ] {
        let bytes = bytes(2, &access, outward, &[]);
        let object = Object::of(Record::split_first(&bytes).unwrap().0).unwrap();
        assert_eq!(object.outermost_owner(), owner);
        assert_eq!(object.access().uid, access.uid);
    }
}

/// Check that two sights together allow only what both allow.
#[test]
fn both_sights_must_allow_it() {
    let of = |bits: u8| Sight {
        owned: bits & 1 != 0,
        files: bits & 2 != 0,
        attach: bits & 4 != 0,
        nice: bits & 8 != 0,
        descriptors: bits & 16 != 0,
    };
    for (one, other) in (0..32).flat_map(|one| (0..32).map(move |other| (one, other))) {
        assert_eq!(of(one).and(of(other)), of(one & other));
    }
}

/// Check that only subjects that may see every task see one that is not dumpable, has capabilities
/// that the subject lacks, or changed during the read.
#[test]
fn tasks_must_be_dumpable_and_stable() {
    let user = subject(USER, 0);
    for (state, plain) in [
        (dumpable::NOT, false),
        (dumpable::ROOT, false),
        (dumpable::NO_MM, true),
        (dumpable::NO_MM_INIT, false),
    ] {
        let access = Access {
            dumpable: U32::new(state),
            ..of(USER)
        };
        assert_eq!(sees(&user, &access), plain, "{state}");
        assert!(sees(&subject(7, CAP_SYS_PTRACE), &access));
    }
    let access = Access {
        cap_permitted: U64::new(1 << 13),
        ..of(USER)
    };
    assert!(!sees(&user, &access));
    assert!(sees(&subject(USER, 1 << 13), &access));
    let access = Access {
        flags: U32::new(0),
        ..of(USER)
    };
    assert!(!sees(&user, &access) && sight(&user, 1, &access, &[]).is_none());
    let equal = |value| {
        Some(Sight {
            owned: value,
            files: value,
            descriptors: value,
            attach: value,
            nice: value,
        })
    };
    assert_eq!(sight(&subject(0, u64::MAX), 2, &access, &[]), equal(true));
    // The owner of the files is not known, so the subject is not taken for the owner.
    assert_eq!(sight(&subject(USER, CAP_SYS_PTRACE), 2, &access, &[]), equal(false));
    for sees_less in [
        Subject {
            landlock: 5,
            ..subject(0, u64::MAX)
        },
        Subject {
            confined: true,
            ..subject(0, u64::MAX)
        },
        Subject {
            hidden_pid: 2,
            ..subject(0, u64::MAX)
        },
        Subject {
            user_ns: 11,
            user_ns_level: 1,
            ..subject(0, u64::MAX)
        },
    ] {
        assert!(sight(&sees_less, 2, &access, &[]).is_none(), "{sees_less:?}");
    }
}

/// Check that a process loses its rights over itself when it executes a program or its credentials
/// change, but not when it drops capabilities.
#[test]
fn own_process_must_be_unchanged() {
    let hidden = Access {
        dumpable: U32::new(dumpable::ROOT),
        ..of(USER)
    };
    let user = subject(USER, 0);
    assert!(sight(&user, 1, &hidden, &[]).is_some());
    let changes: [fn(&mut Access); 11] = [
        |access| access.exec_id = U64::new(1),
        |access| access.uid = U32::new(0),
        |access| access.euid = U32::new(0),
        |access| access.suid = U32::new(0),
        |access| access.fsuid = U32::new(0),
        |access| access.gid = U32::new(0),
        |access| access.egid = U32::new(0),
        |access| access.sgid = U32::new(0),
        |access| access.fsgid = U32::new(0),
        |access| access.cap_permitted = U64::new(1),
        |access| access.user_ns = U32::new(7),
    ];
    for change in changes {
        let mut access = hidden;
        change(&mut access);
        assert!(sight(&user, 1, &access, &[]).is_none(), "{access:?}");
    }
    let had_more = Subject {
        own: OwnProcess {
            cap_permitted: 1,
            ..user.own
        },
        ..user
    };
    assert!(sight(&had_more, 1, &hidden, &[]).is_some());
}

/// Check that capabilities apply in the subject's user namespace and its descendants, and that the
/// owner of a namespace has all capabilities in it.
#[test]
fn capabilities_apply_to_descendants() {
    let below = |level: u32, inode: u32| Access {
        user_ns: U32::new(inode),
        user_ns_level: U32::new(level),
        mm_user_ns: U32::new(inode),
        mm_user_ns_level: U32::new(level),
        cap_permitted: U64::new(u64::MAX),
        ..of(100_000)
    };
    let (child, grandchild) = (below(1, 11), below(2, 12));
    let (chain, longer) = ([(11, USER)], [(12, 100_000), (11, USER)]);
    for (asks, sees) in [
        (subject(USER, 0), true),
        (subject(2000, 0), false),
        (subject(0, CAP_SYS_PTRACE), true),
    ] {
        assert_eq!(sight(&asks, 2, &child, &chain).is_some(), sees, "{asks:?}");
        assert_eq!(sight(&asks, 2, &grandchild, &longer).is_some(), sees, "{asks:?}");
    }
    let inside = |capabilities| Subject {
        user_ns: 11,
        user_ns_level: 1,
        ..subject(100_001, capabilities)
    };
    assert!(sight(&inside(CAP_SYS_PTRACE), 2, &child, &chain).is_some());
    assert!(sight(&inside(CAP_SYS_PTRACE), 2, &grandchild, &longer).is_some());
    assert!(sight(&inside(0), 2, &child, &chain).is_none());
    // An ancestor, and a sibling.
    assert!(sight(&inside(u64::MAX), 2, &of(USER), &[]).is_none());
    assert!(sight(&inside(u64::MAX), 2, &below(1, 13), &[(13, USER)]).is_none());
    // An address space that is not dumpable needs the capability in its own user namespace, not
    // only in a descendant of it.
    let not_dumpable = |access: Access| Access {
        dumpable: U32::new(dumpable::ROOT),
        ..access
    };
    assert!(sight(&inside(CAP_SYS_PTRACE), 2, &not_dumpable(grandchild), &longer).is_some());
    let of_child = Access {
        mm_user_ns: U32::new(11),
        mm_user_ns_level: U32::new(1),
        ..not_dumpable(grandchild)
    };
    let of_initial = Access {
        mm_user_ns: U32::new(INITIAL_USER_NS),
        mm_user_ns_level: U32::new(0),
        ..of_child
    };
    let innermost = Subject {
        user_ns: 12,
        user_ns_level: 2,
        ..inside(CAP_SYS_PTRACE)
    };
    for (asks, of_child_too) in [(inside(CAP_SYS_PTRACE), true), (innermost, false)] {
        let sees = sight_with_memory(&asks, 2, &of_child, &longer, &chain).is_some();
        assert_eq!(sees, of_child_too, "{asks:?}");
        assert!(sight(&asks, 2, &of_initial, &longer).is_none(), "{asks:?}");
    }
    // A list without its end proves nothing.
    assert!(sight(&subject(0, u64::MAX), 2, &grandchild, &[(12, 100_000)]).is_none());
}

/// Check that a Landlock domain shows only tasks within it, that a confined subject sees only
/// itself, and that a hidden process stays hidden.
#[test]
fn confinement_hides_others() {
    let confined = Subject {
        confined: true,
        ..subject(0, u64::MAX)
    };
    assert!(!sees(&confined, &of(0)) && sight(&confined, 1, &of(0), &[]).is_some());
    let hidden = Subject {
        hidden_pid: 2,
        ..subject(0, u64::MAX)
    };
    assert!(!sees(&hidden, &of(0)));
    let landlocked = Subject {
        landlock: 5,
        ..subject(USER, 0)
    };
    assert!(!sees(&landlocked, &of(USER)));
    let access = Access {
        landlock: U64::new(5),
        ..of(USER)
    };
    assert!(sees(&landlocked, &access) && sees(&subject(USER, 0), &access));
}

/// Check that permission to trace a task gives neither its owner's files nor its timer slack.
#[test]
fn tracing_does_not_allow_everything() {
    let tracer = sight(&subject(7, CAP_SYS_PTRACE), 2, &of(USER), &[]).unwrap();
    let counter = Subject {
        counts_files: true,
        ..subject(7, CAP_SYS_PTRACE)
    };
    let counter = sight(&counter, 2, &of(USER), &[]).unwrap();
    assert!(counter.files && !counter.descriptors);
    assert!(!tracer.owned && !tracer.files && !tracer.descriptors && !tracer.nice);
    let reader = sight(&subject(7, CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH), 2, &of(USER), &[]).unwrap();
    assert!(reader.owned && reader.files && reader.descriptors);
    let own = sight(&subject(USER, 0), 2, &of(USER), &[]).unwrap();
    assert!(own.owned && own.files && own.descriptors && !own.nice && own.attach);
    let hidden = Access {
        dumpable: U32::new(dumpable::NOT),
        ..of(USER)
    };
    let own = sight(&subject(USER, 0), 1, &hidden, &[]).unwrap();
    assert!(!own.owned && own.files && own.descriptors && !own.nice && !own.attach);
}

/// Check who owns a task's files: its effective user; if it is not dumpable, the root user of the
/// user namespace of its address space; if it has no address space, root.
#[test]
fn files_have_owners() {
    let (dumpable, not) = (dumpable::USER, dumpable::ROOT);
    for (asks, state, euid, level, owned) in [
        (0, not, USER, 0, true),
        (0, not, USER, 1, false),
        (0, not, 0, 1, false),
        (0, dumpable, USER, 0, false),
        (0, dumpable, 0, 1, true),
        (USER, dumpable, USER, 1, true),
        (USER, not, USER, 0, false),
        (USER, dumpable, 0, 0, false),
    ] {
        let access = Access {
            dumpable: U32::new(state),
            euid: U32::new(euid),
            mm_user_ns_level: U32::new(level),
            ..of(USER)
        };
        let owns = subject(asks, CAP_SYS_PTRACE).owns_files(&access);
        assert_eq!(owns, owned, "{asks} {state} {euid} {level}");
    }
    for state in [dumpable, dumpable::NO_MM, dumpable::NO_MM_INIT] {
        let zombie = Access {
            dumpable: U32::new(state),
            mm: U64::new(0),
            ..of(USER)
        };
        let owns = [0, USER].map(|asks| subject(asks, 0).owns_files(&zombie));
        assert_eq!(owns, [true, false], "{state}");
    }
    // Capabilities in a user namespace do not apply to files outside.
    let inside = Subject {
        user_ns: 11,
        user_ns_level: 1,
        ..subject(7, u64::MAX)
    };
    assert!(!inside.owns_files(&of(USER)) && subject(7, CAP_DAC_OVERRIDE).owns_files(&of(USER)));
}

/// Check that a task without memory, which the kernel treats as one of the initial user namespace,
/// is visible only with the capability there.
#[test]
fn tasks_without_memory() {
    let access = Access {
        dumpable: U32::new(dumpable::NO_MM_INIT),
        mm_user_ns: U32::new(0),
        ..of(USER)
    };
    assert!(sees(&subject(7, CAP_SYS_PTRACE), &access) && !sees(&subject(USER, 0), &access));
}
