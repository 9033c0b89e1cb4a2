//! `task_diag_all CMD [OPTIONS]`: task_diag's test tool, with the broker in the kernel's place.
//!
//! CMD is known by its first letter: `all` processes, `All` threads, the `threads` or the
//! `children` of a process, `one` process. Speaks to the socket in `TASKDIAG_SOCKET`, or the
//! broker's own.

use std::io::{self, BufWriter, Write};
use std::process::exit;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use taskdiag_protocol::wire::{
    self, attribute, attributes, show, Base, Creds, Message, Messages, Request, Stat, Statm, Strategy, Vma, VmaStat,
};
use zerocopy::native_endian::{U32, U64};
use zerocopy::FromBytes as _;

const USAGE: &str = "usage: task_diag_all all|All|threads|children|one [-p PID] [-m] [-s] [-c] [-l] [-x] [-q]
  -p, --pid N     the process
  -m, --maps      memory mappings
  -s, --smaps     with what is resident of them
  -c, --cred      credentials
  -l, --cmdline   command line
  -x, --stat      times, faults and memory
  -q, --quiet     count only";

const SEQ: u32 = 1;

struct Options {
    strategy: Strategy,
    show: u64,
    pid: u32,
    quiet: bool,
}

fn usage() -> ! {
    eprintln!("{USAGE}");
    exit(2)
}

fn options() -> Options {
    let mut args = std::env::args().skip(1);
    let command = args.next().unwrap_or_else(|| usage());
    let strategy = match command.as_bytes().first() {
        Some(b'a') => Strategy::All,
        Some(b'A') => Strategy::AllThreads,
        Some(b't') => Strategy::Thread,
        Some(b'c') => Strategy::Children,
        Some(b'o') => Strategy::One,
        _ => usage(),
    };
    let mut options = Options {
        strategy,
        show: show::BASE,
        pid: 0,
        quiet: false,
    };
    while let Some(arg) = args.next() {
        options.show |= match arg.as_str() {
            "-m" | "--maps" => show::VMA,
            "-s" | "--smaps" => show::VMA | show::VMA_STAT,
            "-c" | "--cred" => show::CRED,
            "-l" | "--cmdline" => show::CMDLINE,
            "-x" | "--stat" => show::STAT | show::STATM,
            "-q" | "--quiet" => {
                options.quiet = true;
                0
            }
            "-p" | "--pid" => {
                options.pid = args.next().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| usage());
                0
            }
            _ => usage(),
        };
    }
    options
}

fn main() {
    let options = options();
    match run(&options) {
        Ok(count) => println!("tasks: {count}"),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            eprintln!("task_diag_all: {error}");
            exit(1);
        }
    }
}

fn run(options: &Options) -> io::Result<u64> {
    let path = std::env::var("TASKDIAG_SOCKET").unwrap_or(wire::SOCKET.to_owned());
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let request = Request {
        seq: SEQ,
        show: options.show,
        strategy: options.strategy,
        pid: options.pid,
    };
    rustix::net::send(&socket, &request.encode(), SendFlags::NOSIGNAL)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut packet = vec![0; wire::PACKET];
    let (mut count, mut last) = (0, 0);
    loop {
        let (len, _) = rustix::net::recv(&socket, &mut packet[..], RecvFlags::empty())?;
        if len == 0 {
            return Err(io::Error::other("the broker has gone"));
        }
        for message in Messages::new(&packet[..len], SEQ) {
            match message.map_err(|malformed| io::Error::other(malformed.0))? {
                Message::Task {
                    header,
                    attributes: list,
                    ..
                } => {
                    let pid = header.pid.get();
                    // A task that did not fit goes on.
                    let goes_on = pid == last;
                    count += u64::from(!goes_on);
                    last = pid;
                    if !options.quiet {
                        let verb = if goes_on { "Continue" } else { "Start" };
                        writeln!(out, "{verb} getting information about {pid}")?;
                        attributes(list).try_for_each(|(kind, payload, _)| print(&mut out, kind, payload))?;
                    }
                }
                Message::Done => {
                    out.flush()?;
                    return Ok(count);
                }
                Message::Error(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

fn print(out: &mut impl Write, kind: u16, payload: &[u8]) -> io::Result<()> {
    match kind {
        attribute::BASE => {
            let Ok((base, _)) = Base::ref_from_prefix(payload) else {
                return Ok(());
            };
            let end = base.comm.iter().position(|&byte| byte == 0).unwrap_or(base.comm.len());
            writeln!(
                out,
                "pid {:5} tgid {:5} ppid {:5} sid {:5} pgid {:5} comm {}",
                base.pid,
                base.tgid,
                base.ppid,
                base.sid,
                base.pgid,
                base.comm[..end].escape_ascii()
            )
        }
        attribute::CRED => {
            let Ok((cred, _)) = Creds::ref_from_prefix(payload) else {
                return Ok(());
            };
            writeln!(out, "uid: {} {} {} {}", cred.uid, cred.euid, cred.suid, cred.fsuid)?;
            writeln!(out, "gid: {} {} {} {}", cred.gid, cred.egid, cred.sgid, cred.fsgid)?;
            let mut set = |name, [low, high]: [U32; 2]| writeln!(out, "{name}: {:08x}{:08x}", high.get(), low.get());
            set("CapInh", cred.cap_inheritable)?;
            set("CapPrm", cred.cap_permitted)?;
            set("CapEff", cred.cap_effective)?;
            set("CapBnd", cred.cap_bset)
        }
        attribute::VMA => mappings(out, payload),
        attribute::STAT => {
            let Ok((stat, _)) = Stat::ref_from_prefix(payload) else {
                return Ok(());
            };
            writeln!(
                out,
                "minflt: {} cminflt: {} majflt: {} cmajflt: {} utime: {} stime: {} cutime: {} cstime: {} threads: {}",
                stat.minflt,
                stat.cminflt,
                stat.majflt,
                stat.cmajflt,
                stat.utime,
                stat.stime,
                stat.cutime,
                stat.cstime,
                stat.threads
            )
        }
        attribute::STATM => {
            let Ok((statm, _)) = Statm::ref_from_prefix(payload) else {
                return Ok(());
            };
            writeln!(
                out,
                "total_vm: {} total_rss: {} anon: {} file: {} shmem: {} swap: {}",
                statm.total_vm, statm.total_rss, statm.anon, statm.file, statm.shmem, statm.swap
            )
        }
        attribute::CMDLINE => {
            let words: Vec<_> = payload
                .split(|&byte| byte == 0)
                .map(|word| word.escape_ascii().to_string())
                .collect();
            writeln!(out, "cmdline: {}", words.join(" ").trim_end())
        }
        _ => Ok(()),
    }
}

fn mappings(out: &mut impl Write, mut rest: &[u8]) -> io::Result<()> {
    while let Ok((vma, _)) = Vma::ref_from_prefix(rest) {
        let part = |at: u16, len: u16| rest.get(at.into()..)?.get(..len.into());
        let name = part(vma.name_off.get(), vma.name_len.get()).unwrap_or_default();
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let flag = |bit: u32, letter| {
            if vma.vm_flags.get() >> bit & 1 == 1 {
                letter
            } else {
                '-'
            }
        };
        writeln!(
            out,
            "{:016x}-{:016x} {}{}{}{} {}",
            vma.start.get(),
            vma.end.get(),
            flag(0, 'r'),
            flag(1, 'w'),
            flag(2, 'x'),
            if flag(3, 's') == 's' { 's' } else { 'p' },
            name.escape_ascii()
        )?;
        let stat = part(vma.stat_off.get(), vma.stat_len.get()).and_then(|stat| VmaStat::ref_from_prefix(stat).ok());
        if let Some((stat, _)) = stat {
            let mut line = |name, bytes: U64| writeln!(out, "{name:<16}{:8} kB", bytes.get() / 1024);
            line("Size:", U64::new(vma.end.get().saturating_sub(vma.start.get())))?;
            line("Rss:", stat.resident)?;
            line("Pss:", U64::new(stat.pss.get() >> 12))?;
            line("Shared_Clean:", stat.shared_clean)?;
            line("Shared_Dirty:", stat.shared_dirty)?;
            line("Private_Clean:", stat.private_clean)?;
            line("Private_Dirty:", stat.private_dirty)?;
            line("Referenced:", stat.referenced)?;
            line("Anonymous:", stat.anonymous)?;
            line("AnonHugePages:", stat.anonymous_thp)?;
            line("Swap:", stat.swap)?;
        }
        let len = usize::from(vma.vma_len.get());
        match rest.get(len..) {
            Some(behind) if len >= size_of::<Vma>() => rest = behind,
            _ => return Ok(()),
        }
    }
    Ok(())
}
