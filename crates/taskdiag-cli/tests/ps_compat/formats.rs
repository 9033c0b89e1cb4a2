//! Headers, lines and forests compared with ps.

use std::collections::BTreeSet;

use crate::beside::{animals, family, fixtures, is_answered, lines, list, normalized, ours, parent, ps, stat, zoo};

/// Check that formats have the columns of ps, in the same places.
#[test]
fn headers_are_those_of_ps() {
    let formats = [
        "aux",
        "axu",
        "axjf",
        "ax",
        "axl",
        "axv",
        "axs",
        "axX",
        "axm",
        "axms",
        "axH",
        "axf",
        "axo pid,comm",
        "axO rss",
        "axO s",
        "-e",
        "-ef",
        "-eF",
        "-el",
        "-efl",
        "-ely",
        "-ej",
        "-ejH",
        "-ejf",
        "-eLf",
        "-eL",
        "-eLl",
        "-eT",
        "-eTf",
        "-ec",
        "-efc",
        "-elc",
        "-eP",
        "-efP",
        "-eFP",
        "-eM",
        "-efM",
        "-em",
        "-eFl",
        "-eFly",
        "-efcL",
        "-eLFy -l",
        "-e u",
        "-e l",
        "-e -j u",
        "-e -L u",
        "-e -T l",
        "-e -j j",
        "-e -L j",
        "-f -p1 x",
        "-l -p1 x",
        "-j -p1 x",
        "axnu",
        "--context -p 1",
        "axZ",
        "auxc",
        "-ef c",
        "axu e",
        "-eo pid,user:20,%cpu,lstart,args",
        "-o nwchan,nwchan:3,pid -p 1",
        "-o pid,comm= -p 1",
        "-o user,comm= -p 1",
        "-o user,pid= -p 1",
        "-o pid= -o comm=XX -p 1",
        "-o user:3,pid -p1",
        "-O vsz -p1",
        "-o comm:3,pid -p 1",
        "-o pid:3=LONGER,comm -p 1",
        "-o policy=LONGER,comm -p 1",
        "1",
        "u 1",
        "p 1",
        "-p 1 -f",
    ];
    for format in formats {
        let args: Vec<&str> = format.split(' ').collect();
        let (theirs, mine) = (lines(&ps(&args)), ours(&args));
        assert!(mine.code.is_some_and(|code| code < 2), "{format}: {}", mine.stderr);
        assert_eq!(lines(&mine).first(), theirs.first(), "{format}");
    }
}

/// Check whole lines, for animals whose lines do not change: they have used no processor time.
#[test]
fn lines_are_those_of_ps() {
    let is_idle = |pid: &u32| stat(*pid)[11..13] == ["0", "0"];
    let pids: Vec<u32> = animals().into_iter().filter(is_idle).collect();
    assert!(pids.len() >= 20, "{} of {}", pids.len(), zoo().len());
    let list = list(pids.iter().copied());
    let formats = [
        "u",
        "j",
        "s",
        "s --cols 35",
        "s --cols 80",
        "s --cols 103",
        "s --cols 104",
        "-o ignored:20,pid,sigmask:4,ignored=LONGER-THAN-ALL-OF-THEM --cols 80",
        "-o ignored:20,pid,sigmask:4,ignored=LONGER-THAN-ALL-OF-THEM",
        "-f",
        "-F",
        "-l",
        "-ly",
        "-j",
        "-c",
        "-fL",
        "-T",
        "m",
        "ms",
        "-m",
        "c",
        "uc",
        "n",
        "un",
        "-o pid,user,group,args",
        "-o args,pid",
        "-o comm:5,pid,args:30,user:3,ppid",
        "-o user,args,pid --cols 100",
        "-o pid,user --cols 5",
        "-o sgi_rss:2,pid",
        "u --cols 100",
        "-f --cols 60",
        "-o pid,args w",
        "-o pid:2,tid:9,comm:4,ppid",
        "-o pid,nwchan,alarm,addr,tmout,wname",
        "-o pid,supgrp,supgid,ruser,label,wchan:20,stat",
        "--sort -pid",
        "--sort=user,-pid -f",
        "h",
        "--no-headers -f",
        "-O ppid",
        "k -pid",
        "O ppid",
        "O c",
        "-m -L",
        "-m -T",
        "e",
        "ec",
        "-o comm,pid e",
        "-o user:12,comm",
        "-o tty:2,tname:2,stat:1,class:1,policy:1,slice:2,pid",
    ];
    let mut compared = 0;
    for format in formats {
        let args: Vec<&str> = format.split(' ').chain(["-p", &list]).collect();
        let (before, mine, after) = (ps(&args), ours(&args), ps(&args));
        assert!(is_answered(&mine), "{format}: {}", mine.stderr);
        let (before, mine, after) = (lines(&before), lines(&mine), lines(&after));
        assert_eq!((mine.len(), mine.len()), (before.len(), after.len()), "{format}");
        for ((before, line), after) in before.iter().zip(&mine).zip(&after) {
            let [before, line, after] = [before, line, after].map(|text| normalized("", text));
            assert!(
                line == before || line == after,
                "{format}:\n{line}\nps:\n{before}\n{after}"
            );
        }
        compared += mine.len();
    }
    assert!(compared > formats.len() * pids.len(), "{compared}");
}

/// Check that a list with a plus adds to a format, before the last column.
#[test]
fn columns_are_added_to_formats() {
    for (format, end) in [("u", "TIME WCHAN COMMAND"), ("-f", "TIME WCHAN CMD")] {
        let shown = lines(&ours(&[format, "-p", "1", "-o", "+wchan"]));
        let header: Vec<&str> = shown[0].split_whitespace().collect();
        assert!(header.join(" ").ends_with(end), "{header:?}");
        assert_eq!(shown.len(), 2);
    }
}

/// Check that a forest has the branches and the order of ps.
#[test]
fn forests_are_drawn_as_ps_draws_them() {
    let family = family();
    assert!(family.len() > 80, "{}", family.len());
    // From here up to init, whose children ps draws differently.
    let mut all: BTreeSet<u32> = family.union(&fixtures()).copied().collect();
    let mut pid = std::process::id();
    while pid > 1 {
        all.insert(pid);
        pid = parent(pid);
    }
    let (family, all) = (list(family), list(all));
    for (options, pids) in [
        ("f", &family),
        ("jf", &family),
        ("-H", &family),
        ("-jH", &family),
        ("-j --forest", &family),
        ("-o pid,ppid,args --forest", &all),
        ("-o pid,comm -H", &all),
        ("-o comm,pid --forest", &all),
    ] {
        let args: Vec<&str> = options.split(' ').chain(["-p", pids]).collect();
        let (theirs, mine) = (ps(&args), ours(&args));
        assert!(is_answered(&mine), "{options}: {}", mine.stderr);
        let (theirs, mine) = (lines(&theirs), lines(&mine));
        for (theirs, mine) in theirs.iter().zip(&mine) {
            let [theirs, mine] = [theirs, mine].map(|text| normalized("", text));
            assert_eq!(mine, theirs, "{options}");
        }
        assert_eq!(mine.len(), theirs.len(), "{options}");
    }
}
