//! `taskdiag sockets`, run as a program.
//!
//! Each test creates its sockets in a network namespace of its own thread, which commands started
//! by the thread inherit. This needs root.

mod common;

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{check_closed_pipe, check_full_disk, command, free_pid, run, run_as_nobody, Run};
use serde_json::{json, Value};

/// Held by each test: the tests compare who has a socket, and a command that another test starts has
/// copies of all descriptors until it is executed.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves this thread into a new network namespace, in which the loopback interface is up.
fn enter_new_network() {
    // SAFETY: a system call without pointers.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(unshared, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the structure is numbers, for which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as _;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as _;
    let any = UnixDatagram::unbound().expect("a socket");
    // SAFETY: the request is of this thread alone, and as the kernel takes it.
    let set = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// The sockets of a test.
struct Network {
    listener: TcpListener,
    client: TcpStream,
    server: TcpStream,
    unix: UnixListener,
}

impl Network {
    fn new() -> Network {
        enter_new_network();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (server, _) = listener.accept().expect("the other end");
        let name = SocketAddr::from_abstract_name("taskdiag \u{1b}[31m").expect("a name");
        Network {
            listener,
            client,
            server,
            unix: UnixListener::bind_addr(&name).expect("a socket"),
        }
    }

    fn port(&self) -> String {
        self.listener.local_addr().expect("an address").port().to_string()
    }
}

fn own() -> String {
    std::process::id().to_string()
}

fn inode(file: &impl std::os::fd::AsRawFd) -> u64 {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::metadata(path).expect("our own socket").ino()
}

/// Runs the command for this network namespace only, where everything can be answered.
fn complete(args: &[&str]) -> Run {
    let run = run(&[&["sockets", "--own-netns"], args].concat());
    assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
    run
}

fn rows(args: &[&str]) -> Vec<Value> {
    let run = complete(&[args, &["--json"]].concat());
    run.json()["rows"].as_array().expect("rows").clone()
}

/// The inode numbers of rows, ascending.
fn inodes(args: &[&str]) -> Vec<u64> {
    let mut inodes: Vec<u64> = rows(args).iter().filter_map(|row| row["inode"].as_u64()).collect();
    inodes.sort_unstable();
    inodes
}

/// Check a row of each kind, and the owner of a socket.
#[test]
fn rows_have_values() {
    let _turn = turn();
    let network = Network::new();
    let all = rows(&[]);
    let row = |file: u64| {
        let found = all.iter().find(|row| row["inode"] == file);
        found.unwrap_or_else(|| panic!("{file}: {all:#?}"))
    };
    let port: u16 = network.port().parse().expect("a port");
    let listener = row(inode(&network.listener));
    assert_eq!(
        [
            &listener["family"],
            &listener["type"],
            &listener["protocol"],
            &listener["state"]
        ],
        [&json!("inet"), &json!("stream"), &json!("tcp"), &json!("LISTEN")]
    );
    assert_eq!(
        (&listener["local_addr"], &listener["local_port"]),
        (&json!("127.0.0.1"), &json!(port))
    );
    let comm = std::fs::read_to_string("/proc/self/comm").expect("our own name");
    let owner = json!({"pid": std::process::id(), "comm": comm.trim_end(), "fd": network.listener.as_raw_fd()});
    assert_eq!(listener["owners"], json!([owner]));
    assert_eq!(listener["absent"]["remote_addr"], "none");
    let netns = std::fs::metadata("/proc/thread-self/ns/net")
        .expect("a namespace")
        .ino();
    assert_eq!(listener["netns"], netns);
    let client = row(inode(&network.client));
    assert_eq!(
        (&client["state"], &client["remote_port"]),
        (&json!("ESTAB"), &json!(port))
    );
    let unix = row(inode(&network.unix));
    assert_eq!(
        (&unix["family"], &unix["path"]),
        (&json!("unix"), &json!("@taskdiag \u{1b}[31m"))
    );
    assert_eq!(unix["absent"]["local_port"], "none");
}

/// Check that each option selects sockets, and how several options combine.
#[test]
fn options_choose_sockets() {
    let _turn = turn();
    let network = Network::new();
    let [listener, client, server] = [inode(&network.listener), inode(&network.client), inode(&network.server)];
    let unix = inode(&network.unix);
    let sorted = |mut inodes: Vec<u64>| {
        inodes.sort_unstable();
        inodes
    };
    let tcp = sorted(vec![listener, client, server]);
    let port = network.port();
    assert_eq!(inodes(&["--tcp"]), tcp);
    assert_eq!(
        inodes(&["--tcp", "--unix"]),
        sorted(vec![listener, client, server, unix])
    );
    assert_eq!(inodes(&["--tcp", "--unix", "-l"]), sorted(vec![listener, unix]));
    // The letters of ss.
    assert_eq!(inodes(&["-tlnp"]), [listener]);
    let before = run(&["--proc", "/proc", "sockets", "-tlnp", "-o", "inode", "--no-header"]).text();
    assert!(
        before.lines().any(|line| line.trim() == listener.to_string()),
        "{before}"
    );
    assert_eq!(inodes(&["-xtnap"]), sorted(vec![listener, client, server, unix]));
    assert_eq!(inodes(&["--port", &port]), tcp);
    assert_eq!(
        inodes(&["--tcp", "--state", "established"]),
        sorted(vec![client, server])
    );
    assert_eq!(inodes(&["--state", "LISTEN,estab", "--tcp"]), tcp);
    assert_eq!(
        inodes(&["--where", &format!("remote_port == {port} and uid == 'root'")]),
        [client]
    );
    assert_eq!(inodes(&["--where", "path ~ '^@taskdiag'"]), [unix]);
    let by_fd = format!("pid == {} and fd == {}", own(), network.server.as_raw_fd());
    assert_eq!(inodes(&["--where", &by_fd]), [server]);
    assert_eq!(inodes(&[&own()]), sorted(vec![listener, client, server, unix]));
    assert_eq!(inodes(&["-p", &own(), "--tcp"]), tcp);
    assert!(rows(&["-u", "nobody", "--tcp"]).is_empty());
    assert_eq!(rows(&["--tcp", "--limit", "2"]).len(), 2);
    let sorted_by = rows(&["--tcp", "--sort", "-inode", "-o", "inode"]);
    let order: Vec<u64> = sorted_by.iter().filter_map(|row| row["inode"].as_u64()).collect();
    assert_eq!(order, tcp.iter().rev().copied().collect::<Vec<u64>>());
}

/// Check the table: the columns of ss, with harmless names, and without a namespace column if there
/// is only one namespace.
#[test]
fn tables_are_for_people() {
    let _turn = turn();
    let network = Network::new();
    let port = network.port();
    let text = complete(&["--tcp", "--unix"]).text();
    let mut lines = text.lines();
    let words = |line: &str| {
        line.split_ascii_whitespace()
            .map(str::to_owned)
            .collect::<Vec<String>>()
    };
    let headings = ["PROTO", "STATE", "RECV-Q", "SEND-Q", "LOCAL", "PEER", "OWNERS"];
    assert_eq!(words(lines.next().expect("headings")), headings);
    let rest: Vec<Vec<String>> = lines.map(words).collect();
    let local = format!("127.0.0.1:{port}");
    let listener = rest
        .iter()
        .find(|line| line[1] == "LISTEN" && line[0] == "tcp")
        .expect("the listener");
    assert_eq!((&listener[2][..], &listener[4], &listener[5][..]), ("0", &local, "*"));
    let fd = network.listener.as_raw_fd();
    assert!(
        listener[6].starts_with(&format!("{}/", own())) && listener[6].ends_with(&format!(":{fd}")),
        "{text}"
    );
    assert!(rest.iter().any(|line| line[1] == "ESTAB" && line[5] == local), "{text}");
    assert!(text.contains("unix/stream") && !text.contains('\u{1b}'), "{text}");
    let info = complete(&["--tcp", "--info"]).text();
    assert!(
        info.lines()
            .next()
            .is_some_and(|line| line.contains("RTT") && line.contains("RETRANS")),
        "{info}"
    );
    assert!(info.contains("ms "), "{info}");
    assert!(!complete(&["--tcp", "--no-header"]).text().contains("PROTO"));
    assert_eq!(
        complete(&["--tcp", "-l", "-o", "state,local_port", "--no-header"]).text(),
        format!("LISTEN {port}\n")
    );
}

/// Check CSV and JSON lines, with owners as text and as objects.
#[test]
fn formats_have_owners() {
    let _turn = turn();
    let network = Network::new();
    let comm = std::fs::read_to_string("/proc/self/comm").expect("our own name");
    let owner = format!("{}/{}:{}", own(), comm.trim_end(), network.listener.as_raw_fd());
    let csv = complete(&["--tcp", "-l", "-o", "state,owners,rtt_ns,path", "--csv"]).text();
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("state,owners,rtt_ns,path"));
    let line = lines.next().expect("a row");
    assert!(
        line.starts_with(&format!("LISTEN,{owner},")) && line.ends_with(','),
        "{csv}"
    );
    let jsonl = complete(&["--tcp", "-l", "--jsonl", "-o", "owners"]).text();
    let row: Value = serde_json::from_str(&jsonl).expect("one line");
    assert_eq!(row["owners"][0]["fd"], network.listener.as_raw_fd());
}

/// Check sums by program, port and state, which count each socket once.
#[test]
fn sums_count_sockets_once() {
    let _turn = turn();
    let network = Network::new();
    let copy = network.listener.try_clone().expect("a descriptor");
    let by = |by: &str| {
        let document = complete(&["--tcp", "--by", by, "--json"]).json();
        (
            document["rows"].as_array().expect("rows").clone(),
            document["total"].clone(),
        )
    };
    let (programs, total) = by("program");
    assert_eq!(programs.len(), 1, "{programs:?}");
    assert_eq!(
        [
            &total["sockets_count"],
            &total["processes_count"],
            &total["listening_count"],
            &total["connected_count"]
        ],
        [3, 1, 1, 2]
    );
    assert_eq!(programs[0]["sockets_count"], 3);
    assert!(
        programs[0]["program"]
            .as_str()
            .is_some_and(|name| name.starts_with("sockets")),
        "{programs:?}"
    );
    let (ports, _) = by("port");
    let port: u16 = network.port().parse().expect("a port");
    let of_port = ports.iter().find(|row| row["local_port"] == port).expect("the port");
    assert_eq!(
        (&of_port["protocol"], &of_port["sockets_count"]),
        (&json!("tcp"), &json!(2))
    );
    let (states, _) = by("state");
    let count = |state: &str| {
        states
            .iter()
            .find(|row| row["state"] == state)
            .map(|row| row["sockets_count"].clone())
    };
    assert_eq!((count("LISTEN"), count("ESTAB")), (Some(json!(1)), Some(json!(2))));
    // What receives from anybody is not in the state LISTEN.
    let all = complete(&["--by", "state", "--json"]).json();
    let counted = all["rows"].as_array().expect("rows").iter();
    let is_same = |row: &Value| {
        let listening = row["state"] == "LISTEN";
        let expected = if listening {
            row["sockets_count"].clone()
        } else {
            json!(0)
        };
        row["listening_count"] == expected
    };
    assert!(counted.clone().all(is_same), "{all}");
    for (group, known) in [
        ("all", &["ESTAB", "LISTEN"][..]),
        ("Connected", &["ESTAB"]),
        ("synchronized", &["ESTAB"]),
        ("big", &["ESTAB", "LISTEN"]),
        ("bucket", &[]),
    ] {
        let sums = complete(&["--tcp", "--by", "state", "--state", group, "--json"]).json();
        let rows = sums["rows"].as_array().expect("rows").iter();
        let states: Vec<&str> = rows.filter_map(|row| row["state"].as_str()).collect();
        assert_eq!(states, known, "{group}");
    }
    let table = complete(&["--tcp", "--by", "state"]).text();
    assert!(
        table.lines().last().is_some_and(|line| line.ends_with("total")),
        "{table}"
    );
    drop(copy);
}

/// Check that other network namespaces are also listed, with their column.
#[test]
fn other_namespaces_are_listed() {
    let _turn = turn();
    let network = Network::new();
    let held = std::fs::File::open("/proc/thread-self/ns/net").expect("a namespace");
    // This thread leaves its sockets behind.
    enter_new_network();
    let listed = run(&["sockets", "--tcp", "--json"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let document = listed.json();
    assert!(document["counters"]["namespaces"].as_u64() > Some(1));
    let rows = document["rows"].as_array().expect("rows");
    let listener = rows
        .iter()
        .find(|row| row["inode"] == inode(&network.listener))
        .expect("the listener");
    assert_eq!(listener["netns"], inode(&held));
    assert_eq!(listener["owners"][0]["pid"], std::process::id());
    let table = run(&["sockets", "--tcp"]).text();
    assert!(
        table.lines().next().is_some_and(|line| line.contains("NETNS")),
        "{table}"
    );
    assert!(table.contains(&format!(" {} ", inode(&held))), "{table}");
}

/// Check what counts as wrong usage, and the messages.
#[test]
fn wrong_usage_is_named() {
    let _turn = turn();
    for (args, part) in [
        (&["--state", "open"][..], "TIME-WAIT"),
        (&["--where", "locl_port == 1"], "local_port"),
        (&["--where", "state = 'x'"], "equality"),
        (&["-o", "nosuch"], "unknown field"),
        (&["--sort", "nosuch"], "unknown field"),
        (&["--sort", "-pid"], "pid is of the owners, which `-o owners` shows"),
        (&["-o", "fd"], "fd is of the owners"),
        (&["-o", "rss"], "rss is of the owners"),
        (&["--by", "state", "-o", "state"], "--by"),
        (&["--by", "state", "--sort", "inode"], "unknown key"),
        (&["--port", "70000"], "70000"),
        (&["--source", "broker", "--socket", "/nonexistent"], "/nonexistent"),
    ] {
        let run = run(&[&["sockets"], args].concat());
        assert_eq!(run.code, Some(2), "{args:?}: {run:?}");
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    }
    let missing = run(&["sockets", &free_pid()]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
}

/// Check that the user nobody sees their own namespace, and is informed of what is missing.
#[test]
fn nobody_is_told_what_is_missing() {
    let _turn = turn();
    let network = Network::new();
    let Some(run) = run_as_nobody(&["sockets", "--tcp", "--json"]) else {
        return;
    };
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("descriptors of "), "{}", run.stderr);
    let document = run.json();
    let rows = document["rows"].as_array().expect("rows");
    let listener = rows
        .iter()
        .find(|row| row["inode"] == inode(&network.listener))
        .expect("our own");
    assert_eq!(
        (&listener["absent"]["owners"], &listener["absent"]["mark"]),
        (&json!("denied"), &json!("denied"))
    );
    assert!(document["counters"]["processes_denied"].as_u64() > Some(0));
}

/// Check that closed pipes are silent and full disks are reported.
#[test]
fn outputs_can_fail() {
    let _turn = turn();
    let _network = Network::new();
    check_closed_pipe(&["sockets", "--own-netns", "--json"]);
    check_full_disk(&["sockets", "--own-netns"]);
}

/// Check that peers are shown only on request.
#[test]
fn peers_are_shown_on_request() {
    let _turn = turn();
    let network = Network::new();
    let rows = |args: &[&str]| run(args).json()["rows"].as_array().expect("rows").clone();
    let args = ["sockets", "--tcp", "--own-netns", "--json", "-o", "inode,peers"];
    let of = |inode: u64, rows: &[Value]| rows.iter().find(|row| row["inode"] == inode).expect("a socket").clone();
    let found = rows(&args);
    let client = of(inode(&network.client), &found);
    assert_eq!(client["peers"][0]["fd"], json!(network.server.as_raw_fd()), "{client}");
    assert_eq!(client["peers"][0]["pid"], json!(std::process::id()));
    assert_eq!(of(inode(&network.listener), &found)["absent"]["peers"], "none");
    let usual = rows(&args[..4]);
    assert!(of(inode(&network.client), &usual).get("peers").is_none());
    assert!(of(inode(&network.client), &usual)["absent"].get("peers").is_none());
    let table = run(&["sockets", "--tcp", "--own-netns", "-o", "+peers"]);
    let port = network.port();
    assert!(table
        .text()
        .lines()
        .any(|line| line.contains(&port) && line.contains(&own())));
    assert_eq!(run(&["sockets", "--where", "peers == 1"]).code, Some(2));
}

/// Check that clients of IPv4 are found at a socket that takes IPv4 and IPv6, and that the table
/// shows such a socket as ss does, which is asked.
#[test]
fn sockets_take_ipv4_too_or_ipv6_only() {
    let _turn = turn();
    enter_new_network();
    let both = TcpListener::bind("[::]:80").expect("a socket");
    let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
    // The standard library can't set the option, which is refused after bind(2).
    let only = {
        std::fs::write("/proc/sys/net/ipv6/bindv6only", "1").expect("a setting of this network");
        TcpListener::bind("[::]:81").expect("a socket")
    };
    let any = TcpListener::bind("0.0.0.0:82").expect("a socket");
    let client = TcpStream::connect(("127.0.0.1", port(&both))).expect("a connection");
    let (server, _) = both.accept().expect("its other end");
    let (of_client, of_server) = (inode(&client), inode(&server));
    for (expression, expected) in [
        ("remote_addr in '127.0.0.0/8'", vec![of_client, of_server]),
        ("remote_addr == '127.0.0.1'", vec![of_client, of_server]),
        (
            "remote_addr in ('10.0.0.1', '::ffff:127.0.0.1')",
            vec![of_client, of_server],
        ),
        ("remote_addr == local_addr", vec![of_client, of_server]),
        ("remote_addr in '::ffff:0:0/96'", vec![of_client, of_server]),
        ("remote_addr in '::/0'", vec![of_server]),
        ("remote_addr not in '127.0.0.0/8'", vec![]),
        ("remote_addr != '127.0.0.1'", vec![]),
        ("ipv6_only", vec![inode(&only)]),
        ("not ipv6_only", vec![inode(&both)]),
        ("state == 'estab' and family == 'INET'", vec![of_client]),
    ] {
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(inodes(&["--tcp", "--where", expression]), expected, "{expression}");
    }
    let rows = rows(&["--tcp"]);
    let said = |inode: u64| {
        let row = rows.iter().find(|row| row["inode"] == inode).expect("the socket");
        (row["ipv6_only"].as_bool(), row["absent"]["ipv6_only"].clone())
    };
    assert_eq!(said(inode(&both)), (Some(false), Value::Null));
    assert_eq!(said(inode(&only)), (Some(true), Value::Null));
    assert_eq!(said(inode(&any)), (None, json!("none")));
    assert_eq!(said(of_client), (None, json!("none")));
    // The kernel says nothing about connections.
    assert_eq!(said(of_server), (None, json!("unsupported")));

    let theirs = std::process::Command::new("ss")
        .args(["-Htan"])
        .output()
        .expect("dev/setup.sh installs it");
    let theirs = String::from_utf8(theirs.stdout).expect("a table");
    let locals = |text: &str| {
        let mut locals: Vec<String> = text
            .lines()
            .map(|line| line.split_ascii_whitespace().nth(3).expect("an address").to_owned())
            .collect();
        locals.sort();
        locals
    };
    let table = complete(&["--tcp", "--no-header"]).text();
    let without_protocol: String = table.lines().map(|line| line[4..].to_owned() + "\n").collect();
    assert_eq!(locals(&without_protocol), locals(&theirs), "{table}{theirs}");
    assert!(locals(&theirs).contains(&"*:80".to_owned()), "{theirs}");
    let page = run(&["inspect", &own()]).text();
    for address in [" *:80 ", " [::]:81 ", " 0.0.0.0:82 "] {
        assert!(page.contains(address), "{address}: {page}");
    }
}

/// Check that a path is not taken for an abstract name, nor a name with a NUL for another.
#[test]
fn unix_names_differ() {
    let _turn = turn();
    enter_new_network();
    let directory = std::env::temp_dir().join(format!("taskdiag-names-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let before = std::env::current_dir().expect("a directory");
    std::env::set_current_dir(&directory).expect("a directory");
    let path = UnixListener::bind("@foo@bar");
    std::env::set_current_dir(before).expect("a directory");
    std::fs::remove_dir_all(&directory).expect("our directory");
    let path = path.expect("a socket");
    let [plain, with_nul] = ["foo@bar", "foo\0bar"].map(|name| {
        let name = SocketAddr::from_abstract_name(name).expect("a name");
        UnixListener::bind_addr(&name).expect("a socket")
    });
    let (path, plain, with_nul) = (inode(&path), inode(&plain), inode(&with_nul));
    let all = rows(&["--unix"]);
    let name = |inode| &all.iter().find(|row| row["inode"] == inode).expect("the socket")["path"];
    assert_eq!(name(path), "./@foo@bar");
    assert_eq!(name(plain), "@foo@bar");
    assert_eq!(name(with_nul), "@foo\0bar");
    assert_eq!(inodes(&["--where", "path == '@foo@bar'"]), [plain]);
    assert_eq!(inodes(&["--where", "path == './@foo@bar'"]), [path]);
    assert_eq!(inodes(&["--where", r"path ~ '^@foo\x00'"]), [with_nul]);
    let locals = |text: &str| {
        let mut locals: Vec<String> = text
            .lines()
            .map(|line| line.split_ascii_whitespace().nth(4).expect("a name").to_owned())
            .collect();
        locals.sort();
        locals
    };
    let table = complete(&["--unix", "--no-header"]).text();
    assert_eq!(locals(&table), ["./@foo@bar", "@foo@bar", r"@foo\x00bar"], "{table}");
    let csv = complete(&["--unix", "--csv", "--no-header", "-o", "path"]).text();
    let mut lines: Vec<&str> = csv.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["./@foo@bar", "@foo\0bar", "@foo@bar"]);
    let page = run(&["inspect", &own()]).text();
    for name in [" ./@foo@bar ", " @foo@bar ", r" @foo\x00bar "] {
        assert!(page.contains(name), "{name}: {page}");
    }
}

/// Check that sockets of a process that are in no list are counted, with their protocols, and that
/// those of a network namespace that nothing else keeps alive are listed.
#[test]
fn sockets_in_no_list_are_counted() {
    let _turn = turn();
    let unlisted = |args: &[&str]| {
        let run = run(&[&["sockets", "--json"], args].concat());
        (run.json()["counters"]["unlisted"].as_u64(), run.code, run.stderr)
    };
    enter_new_network();
    let left = TcpListener::bind("127.0.0.1:80").expect("a socket");
    enter_new_network();
    let listed = TcpListener::bind("127.0.0.1:80").expect("a socket");
    assert_eq!(inodes(&["--tcp"]), [inode(&listed)]);
    // SAFETY: a system call without pointers.
    let bare = unsafe { libc::socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the descriptor is new, if there is one.
    let bare = unsafe { std::os::fd::OwnedFd::from_raw_fd(bare) };

    let (count, code, said) = unlisted(&[&own()]);
    assert_eq!((count, code), (Some(1), Some(1)), "{said}");
    assert!(
        said.contains("1 socket left out") && said.contains("(1 TCPv6)"),
        "{said}"
    );
    assert_eq!(unlisted(&["-p", &own()]).0, Some(1));
    let rows = run(&[
        "sockets",
        &own(),
        "--tcp",
        "--jsonl",
        "-o",
        "inode,local_port,owners,netns",
    ])
    .text();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let row = |socket: &TcpListener| rows.iter().find(|row| row["inode"] == inode(socket)).expect("a row");
    for socket in [&left, &listed] {
        let fd = socket.as_raw_fd();
        assert_eq!(
            (&row(socket)["local_port"], &row(socket)["owners"][0]["fd"]),
            (&json!(80), &json!(fd))
        );
    }
    assert_ne!(row(&left)["netns"], row(&listed)["netns"]);
    // Of all processes, none has to be told about, but they are counted.
    let (all, _, said) = unlisted(&[]);
    assert!(all >= Some(1) && !said.contains("left out: in no list"), "{said}");
    for (kind, expected) in [("--tcp", 1), ("--udp", 0), ("--unix", 0)] {
        assert_eq!(unlisted(&[kind, &own()]).0, Some(expected), "{kind}");
    }
    // What is asked about these sockets, nobody knows.
    for args in [
        &["-l"][..],
        &["--state", "estab"],
        &["--port", "80"],
        &["--own-netns"],
        &["--where", "fd > 0"],
    ] {
        let own = own();
        let args = [args, &[&own[..]]].concat();
        assert_eq!(unlisted(&args).0, None, "{args:?}");
    }
    let page = run(&["inspect", &own(), "--json"]).json()["rows"][0]["sockets"].clone();
    let row = |inode: u64| {
        page.as_array()
            .and_then(|rows| rows.iter().find(|row| row["inode"] == inode))
            .expect("a row")
    };
    assert_eq!(
        (&row(inode(&bare))["protocol"], &row(inode(&left))["protocol"]),
        (&json!("TCPv6"), &json!("tcp"))
    );
    assert!(row(inode(&bare))["absent"]["state"].is_string(), "{page}");

    drop((bare, left));
    let (count, code, said) = unlisted(&[&own()]);
    assert_eq!((count, code), (Some(0), Some(0)), "{said}");
}

/// Check that closed directions and groups of netlink are those that this process chose.
#[test]
fn closed_directions_and_groups_are_told() {
    let _turn = turn();
    enter_new_network();
    let (one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    one.shutdown(std::net::Shutdown::Write).expect("one direction");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let client = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    client.shutdown(std::net::Shutdown::Read).expect("one direction");
    // SAFETY: a system call without pointers; the descriptor is new.
    let netlink = unsafe {
        std::os::fd::OwnedFd::from_raw_fd(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE))
    };
    // More than the 32 that bind(2) takes.
    for group in [1_u32, 5, 33] {
        let len = size_of::<u32>() as libc::socklen_t;
        // SAFETY: the group is as long as it says.
        let joined = unsafe {
            let option = (libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP);
            libc::setsockopt(netlink.as_raw_fd(), option.0, option.1, (&raw const group).cast(), len)
        };
        assert_eq!(joined, 0, "{}", std::io::Error::last_os_error());
    }
    // It is in the list once it has a port.
    // SAFETY: zeros are an address, and the kernel chooses the port.
    let bound = unsafe {
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as _;
        address.nl_groups = 0b1_0001;
        let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        libc::bind(netlink.as_raw_fd(), (&raw const address).cast(), len)
    };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    let all = rows(&[]);
    let row = |inode| all.iter().find(|row| row["inode"] == inode).expect("the socket");
    assert_eq!(row(inode(&one))["shutdown"], "send");
    assert_eq!(row(inode(&other))["shutdown"], "receive");
    assert_eq!(row(inode(&client))["shutdown"], "receive");
    assert_eq!(row(inode(&listener))["shutdown"], "");
    assert_eq!(row(inode(&netlink))["netlink_groups"], json!([1, 5, 33]));
    assert_eq!(row(inode(&client))["absent"]["netlink_groups"], "none");
    assert_eq!(inodes(&["--unix", "--where", "shutdown == 'send'"]), [inode(&one)]);
    assert_eq!(inodes(&["--where", "netlink_groups has 33"]), [inode(&netlink)]);
    let csv = complete(&["--netlink", "-p", &own(), "-o", "netlink_groups", "--csv"]).text();
    assert_eq!(csv, "netlink_groups\n1 5 33\n");
}

/// Check that a filter that reads names of owners does not find the command, whose output is a
/// socket here.
#[test]
fn the_command_is_no_owner_that_is_looked_for() {
    let _turn = turn();
    enter_new_network();
    let found = |more: &[&str]| {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut command = command(&[&["sockets", "--own-netns", "--unix", "--jsonl", "--where"], more].concat());
        let status = command
            .stdout(std::os::fd::OwnedFd::from(theirs))
            .status()
            .expect("it runs");
        drop(command);
        let mut text = String::new();
        std::io::Read::read_to_string(&mut ours, &mut text).expect("its output");
        assert!(status.success());
        text.lines().count()
    };
    assert_eq!(found(&["comm == 'taskdiag'"]), 0);
    assert_eq!(found(&["fd == 1"]), 1);
}

/// Check that in a pid namespace of one's own, processes outside are not taken for nobody, though the
/// network is the same: their numbers are not known there.
#[test]
fn owners_outside_are_not_nobody() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port().to_string();
    for source in ["bpf", "procfs"] {
        let mut inside = std::process::Command::new("unshare");
        inside.args([
            "--pid",
            "--fork",
            "--mount-proc",
            env!("CARGO_BIN_EXE_taskdiag"),
            "sockets",
            "--port",
            &port,
        ]);
        inside.args(["-o", "local_port,owners", "--jsonl", "--source", source]);
        let run = Run::new(inside.output().expect("unshare is part of Debian"));
        assert!(run.json()["absent"]["owners"] == "denied", "{source}: {run:?}");
    }
    let outside = run(&["sockets", "--port", &port, "-o", "owners", "--jsonl"]).json();
    assert_eq!(outside["owners"][0]["pid"], std::process::id(), "{outside}");
}

/// Check that a peer is one, by whatever family it is reached, that several filters must all be true,
/// and that there is no sum of what no socket has.
#[test]
fn sums_have_one_row_for_a_peer() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a socket");
    let port = listener.local_addr().expect("an address").port();
    let connect = |address: &str| std::net::TcpStream::connect((address, port)).expect("a connection");
    let _connected = [connect("127.0.0.1"), connect("::ffff:127.0.0.1")];
    let is_ours = format!("remote_port == {port}");
    let args = [
        "sockets",
        "--by",
        "remote_addr",
        "--info",
        "--where",
        &is_ours,
        "--where",
        "state == 'ESTAB'",
        "--json",
    ];
    let document = run(&args).json();
    let [row] = document["rows"].as_array().expect("rows").as_slice() else {
        panic!("{document}")
    };
    assert_eq!(
        (&row["remote_addr"], &row["sockets_count"]),
        (&"127.0.0.1".into(), &2.into()),
        "{row}"
    );
    assert!(row["acked_bytes"].is_u64(), "{row}");
    let is_ours = format!("local_port == {port}");
    let document = run(&["sockets", "-l", "--by", "port", "--info", "--where", &is_ours, "--json"]).json();
    assert_eq!(document["rows"][0]["absent"]["acked_bytes"], "not asked", "{document}");
}
