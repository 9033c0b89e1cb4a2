//! What those type who know other programs, and what it means here.

use std::ffi::OsString;

use crate::ps::command_at;
use Means::{Hint, InWord, Same};

/// The meaning of a word.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// The same as an option; nothing if it is so without one.
    Same(&'static str),
    /// The same among other letters, as in `-tulpn`. Alone it is an option of this program.
    InWord(&'static str),
    /// Nothing. This says what to type.
    Hint(&'static str),
}

const ON_COMMAND: &str = "";
/// Words of every command that has no meaning of its own for them.
const ON_ANY: &str = "*";
const IPV4: &str = "--where=family == 'inet'";
const IPV6: &str = "--where=family == 'inet6'";
const IPV4_AND_IPV6: &str = "--where=family in ('inet', 'inet6')";
const TIMERS: &str = "--fields=+timer,timer_ns,retransmits_count";
const EXPRESSIONS: &str = "filters are expressions: --where \"remote_addr in '10.0.0.0/8' and remote_port == 443\", \
                           with local_addr and local_port for this end; --port N is a port at either end";
const COLUMNS: &str = "a plus adds columns behind an -o of its own, as in -o +inode";
const OF_SOCKETS: &str = "`taskdiag sockets` lists sockets: --port N, --tcp, --udp, --unix";
const KINDS: &str = "--tcp, --udp, --raw, --unix, --netlink, --packet and --vsock choose kinds, -4 and -6 families";
const RULES: &str = "rules with comm and cmdline in the file of --config name groups";
const INTERFACES: &str = "all interfaces count together; `ip -s link` counts each";
const SUMS: &str =
    "`taskdiag top -b --by user` adds up processor time, memory and rates; mem, net, files, sockets, cache have --by, too";
const PAST: &str =
    "`taskdiag top --history DIR` goes through a recording, `taskdiag ps --history DIR --at TIME` shows \
                    a moment of it, --from TIME --to TIME a period";

/// The command, words, and their meaning. One dash stands for two, too, and letters of one command
/// can be in one word.
const HABITS: &[(&str, &str, Means)] = &[
    (ON_COMMAND, "free slabtop smem", Hint("`taskdiag mem` shows the memory of processes, `taskdiag mem --system` that of the machine")),
    (ON_COMMAND, "df du", Hint("`taskdiag files --path PATH` lists who has files of a file system open, `taskdiag cache PATH` what of them is in memory")),
    (ON_COMMAND, "fuser", Hint("`taskdiag files --path PATH` lists who has a file open, `taskdiag sockets --port N` who has a port")),
    (ON_COMMAND, "atop btop glances htop", Hint("`taskdiag top` shows processes, `taskdiag record` records them")),
    (ON_COMMAND, "iotop", Hint("`taskdiag watch --sort -write_bytes_per_s` shows who reads and writes")),
    (ON_COMMAND, "kill killall skill", Hint("`taskdiag pkill NAME` signals processes by name or other properties")),
    (ON_COMMAND, "lsfd lsof", Hint("`taskdiag files` lists what processes have open, with --path PATH who has a file open; `taskdiag sockets` lists sockets")),
    (ON_COMMAND, "bmon bwm-ng ifstat iftop nethogs nload tcptop vnstat", Hint("`taskdiag net --watch 1` shows who uses the network, with --by remote_addr with whom; `ip -s link` counts interfaces")),
    (ON_COMMAND, "dstat iostat mpstat sar vmstat", Hint("`taskdiag top` has processors, memory and disks of the machine in its head, `taskdiag watch` what each process does")),
    (ON_COMMAND, "netstat", Hint("`taskdiag sockets` lists sockets, as in -tulpn; `taskdiag net` counts what each process sends and receives")),
    (ON_COMMAND, "pidof", Hint("`taskdiag pgrep -x NAME` prints the ids of processes")),
    (ON_COMMAND, "pidstat", Hint("`taskdiag watch` shows what processes do, sample by sample")),
    (ON_COMMAND, "pmap", Hint("`taskdiag maps PID` lists the mappings of a process")),
    (ON_COMMAND, "process-exporter", Hint("`taskdiag metrics` has the metrics and options of process-exporter")),
    (ON_COMMAND, "pstree", Hint("`taskdiag tree` shows processes below their parents")),
    (ON_COMMAND, "pwdx", Hint("`taskdiag ps -o pid,cwd -p PID` shows the working directory of a process")),
    (ON_COMMAND, "ionice renice taskset", Hint("`taskdiag top` changes nice values with the key r, I/O priorities with i, processors with a")),
    (ON_COMMAND, "lsns", Hint("`taskdiag ps -o pid,ns_pid,ns_mnt,ns_net,comm` shows the namespaces of processes")),
    (ON_COMMAND, "prlimit ulimit", Hint("`taskdiag inspect PID` shows the limits of a process, and what it uses of them")),
    (ON_COMMAND, "execsnoop ltrace strace", Hint("`taskdiag events` shows processes that begin, execute programs and end")),
    (ON_COMMAND, "fincore vmtouch", Hint("`taskdiag cache PATH` shows what is in the page cache")),
    (ON_COMMAND, "list process processes show", Hint("`taskdiag ps` lists processes, `taskdiag inspect PID` shows one")),
    (ON_COMMAND, "uptime", Hint("`taskdiag top` has the load averages and the time since boot in its head")),
    (ON_COMMAND, "version", Hint("`taskdiag --version` prints the version")),
    (ON_COMMAND, "ss", Hint("`taskdiag sockets` lists sockets, with the letters of ss, as in -tlnp")),
    (ON_COMMAND, "thread threads", Hint("`taskdiag ps -T` lists threads, with -p PID those of a process")),
    (ON_COMMAND, "env environ", Hint("`taskdiag inspect --environ PID` shows the environment of a process")),
    (ON_ANY, "-top", Hint("--limit N shows the first N rows, after sorting, as in `taskdiag ps --sort -rss --limit 10`")),
    ("events", "-by", Hint(SUMS)),
    ("events", "-grep", Hint("--where \"comm ~ 'TEXT'\" chooses by the name, with cmdline by the arguments")),
    ("events", "-sort", Hint("events come as they happen; those of a recording can be sorted: `taskdiag events --history DIR --csv | sort`")),
    ("files", "+D -under", Same("--path")),
    ("files", "-port", Hint(OF_SOCKETS)),
    ("files", "+d", Hint("--path DIR has all below a directory; of those --where \"not name ~ '^DIR/.*/'\" has its own")),
    ("files", "+L +L1", Same("--deleted")),
    ("files", "-P -a -b -n -w", Same("")),
    ("files", "^", Hint("--where leaves out: \"euid != 'root'\" a user, \"pid != 1\" a process")),
    ("files", "+", Hint(COLUMNS)),
    ("files", "-k", Hint("`taskdiag files --path PATH -o pid --csv --no-header | sort -u` prints whom to signal")),
    ("files", "+E -E", Hint("-o +peers shows who has the other ends of pipes and sockets")),
    ("files", "-F", Hint("--jsonl and --csv are for programs, with the fields of -o")),
    ("files", "-U", Hint("`taskdiag sockets --unix` lists UNIX sockets")),
    ("files", "-c", Hint("--where \"comm ~ '^NAME'\" chooses by the name of the process")),
    ("files", "-d", Hint("--use fd,cwd,root,exe,map chooses what files are used for, --where 'fd == 3' a descriptor")),
    ("files", "-i", Hint(OF_SOCKETS)),
    ("files", "-m", Hint("--path with the mount point of a file system has all its files")),
    ("files", "-r", Hint("`watch -n 5 taskdiag files …` repeats it")),
    ("files", "-t", Hint("-o pid --csv --no-header prints process ids alone")),
    ("history", "-b -e -r", Hint(PAST)),
    ("history", "check", Hint("`taskdiag history DIR` checks a recording; --verify reads every sample, too")),
    ("maps", "-d", Same("")),
    ("maps", "-q", Same("--no-header")),
    ("maps", "-X -XX", Hint("-x adds resident and dirty sizes, -o all shows all")),
    ("mem", "-b -g -k -l -m -t -w", Hint("`taskdiag mem --system` shows the memory of the machine; sizes have the unit that fits, --bytes shows exact ones")),
    ("inspect", "-p -pid", Same("")),
    ("cache", "-p -pid", Same("--of-process")),
    ("mem", "-d -delay -interval", Same("--watch")),
    ("mem", "-c -s", Hint("`taskdiag mem --watch SECONDS` repeats it")),
    ("mem", "-top", Same("--limit")),
    ("metrics", "-children", Same("--children")),
    ("metrics", "-config.path", Same("--config")),
    ("metrics", "-procfs", Same("--proc")),
    ("metrics", "-recheck", Same("--recheck")),
    ("metrics", "-remove-empty-groups", Same("--remove-empty-groups")),
    ("metrics", "-threads", Same("--threads")),
    ("metrics", "-web.listen-address", Same("--listen")),
    ("metrics", "-gather-smaps", Hint("--pss-budget 2% reads proportional set sizes; without it they are left out")),
    ("metrics", "-namemapping -procnames", Hint(RULES)),
    ("net", "-delay -interval", Same("--watch")),
    ("net", "port local_port", Hint("--by remote_port is the port at the other end; `taskdiag sockets --by port --info` has the local ones")),
    ("net", "-a -e -l -r -s -t -x", Hint("`taskdiag sockets` lists sockets, as in -tulpn; `taskdiag net` counts what each process sends and receives")),
    ("net", "-i any eth0 lo wlan0", Hint(INTERFACES)),
    ("net", "-c -n 1 2 5 10", Hint("without --watch it counts for a second and ends; `taskdiag net --watch 1 -n N` shows N samples")),
    ("ps", "-by", Hint(SUMS)),
    ("ps", "-since -until", Hint(PAST)),
    ("ps", "-tree", Hint("`taskdiag tree` shows processes below their parents, and so does `taskdiag ps --forest`")),
    ("ps", "-interval", Hint("--watch SECONDS repeats it")),
    ("record", "-delay -interval", Same("--every")),
    ("record", "-d", Hint("--every SECONDS is the time between two samples, --dir DIR is where they are written")),
    ("record", "-w", Hint("`taskdiag record --dir DIR --every SECONDS -n SAMPLES` writes a recording")),
    ("sockets", "-0", Same("--packet")),
    ("sockets", "-4 -inet -ipv4", Same(IPV4)),
    ("sockets", "-6 -inet6 -ipv6", Same(IPV6)),
    ("sockets", "-H", Same("--no-header")),
    ("sockets", "-O -W -a -e -n -all -extended -numeric -oneline -processes -program -programs -wide", Same("")),
    ("sockets", "-i", Same("--info")),
    ("sockets", "-l", Same("--listening")),
    ("sockets", "-o", InWord(TIMERS)),
    ("sockets", "-p", InWord("")),
    ("sockets", "-s -summary", Same("--by=state")),
    ("sockets", "-t", Same("--tcp")),
    ("sockets", "-u", InWord("--udp")),
    ("sockets", "-w", Same("--raw")),
    ("sockets", "-x", Same("--unix")),
    ("sockets", "-options -timers", Same(TIMERS)),
    ("sockets", "-A -f", Hint(KINDS)),
    ("sockets", "-E -c", Hint("`watch -n 1 taskdiag sockets …` repeats it")),
    ("sockets", "-N", Hint("sockets of all network namespaces are shown; --own-netns leaves the others out")),
    ("sockets", "-m -memory", Hint("there is no memory of sockets; RECV-Q and SEND-Q are what waits in them")),
    ("sockets", "-r -resolve", Hint("there are no names of hosts; of netstat -r: `ip route`")),
    ("sockets", "state", Same("--state")),
    ("sockets", "( ! dport dst not sport src", Hint(EXPRESSIONS)),
    ("sockets", "^", Hint("--where leaves out, as in --where \"uid != 'root'\"")),
    ("sockets", "+", Hint(COLUMNS)),
    ("sockets", "-I -g", Hint("`ip -s link` counts interfaces, `ip maddress` lists multicast groups")),
    ("sockets", "-M -S -d", Hint("--where \"protocol == 'mptcp'\" chooses a protocol; sctp and dccp are others")),
    ("sockets", "-T -Z -z", Hint("owners are processes; `taskdiag ps -Z` shows their security contexts")),
    ("sockets", "-b -B", Hint("there are no filters of sockets; `ss -0b` shows them")),
    ("sockets", "-K -kill", Hint("nothing here closes sockets: `ss -K` does")),
    ("sockets", "exclude", Hint("--where \"state != 'TIME-WAIT'\" leaves out a state")),
    ("top", "-C -no-color", Same("--color=never")),
    ("top", "-H", Same("--threads")),
    ("top", "-M", Same("--no-mouse")),
    ("top", "-c", Same("")),
    ("top", "-b", Same("--batch")),
    ("top", "-i", Same("--where=cpu_percent > 0")),
    ("top", "-t", Same("--tree")),
    ("top", "-E -e", Hint("sizes have the unit that fits; --bytes shows exact ones")),
    ("top", "-F -filter", Hint("--where \"cmdline ~ 'TEXT'\" chooses processes, and so does the key \\")),
    ("top", "-U", Hint("-u USER chooses effective users, --where \"uid == 'USER'\" real ones")),
    ("top", "-1", Hint("the key 1 shows a bar for each processor or one for all, and so does processors = all in the settings")),
    ("top", "-O", Hint("`taskdiag fields` lists the fields for -o and --sort")),
    ("top", "-S", Hint("-o +cutime_ns,cstime_ns shows the times of children that have ended")),
    ("top", "-json -jsonl -csv", Hint("`taskdiag watch --jsonl` prints samples for programs")),
    ("top", "-limit -top", Hint("`taskdiag watch --limit N` prints the first N; top fills the screen")),
    ("top", "-s -sort-key", Hint("--sort -FIELD sorts, as in --sort -rss_bytes")),
    ("top", "-w", Hint("`COLUMNS=N taskdiag top -b` prints lines of N characters")),
    ("top", "-interval", Same("--delay")),
    ("tree", "-A", Same("--ascii")),
    ("tree", "-U -a -c -l -n", Same("")),
    ("watch", "-P -b -t", Same("")),
    ("watch", "-interval", Same("--delay")),
    ("watch", "-a", Hint("-o +read_bytes,write_bytes shows totals")),
    ("watch", "-r -w", Hint("-o chooses columns, as in -o +maj_faults_per_s,voluntary_switches,involuntary_switches")),
    ("watch", "1 2 5 10", Hint("`taskdiag watch -d 1 -n 5` takes a sample each second, five times")),
    ("tree", "-T -threads", Hint("`taskdiag ps -L -p PID` and `taskdiag top --threads` show threads")),
    ("watch", "-by", Hint(SUMS)),
    ("tree", "-p", Hint("process ids are always shown; -p PID chooses processes")),
];

/// The options whose value may begin with a dash.
const VALUE_WITH_DASH: [&str; 4] = ["--sort", "--at", "--from", "--to"];

/// The meaning of a word of a command.
fn meaning(command: &str, word: &str) -> Option<Means> {
    let of = |place: &str| {
        let mut habits = HABITS.iter().filter(|habit| habit.0 == place);
        habits.find(|habit| habit.1.split(' ').any(|known| known == word))
    };
    let found = of(command).or_else(|| of(ON_ANY).filter(|_| command != ON_COMMAND));
    found.map(|habit| habit.2)
}

/// Whether a habit of a command stands for this option.
fn is_meant(command: &str, option: &str) -> bool {
    let stands = |means| matches!(means, Same(meant) | InWord(meant) if meant == option);
    HABITS.iter().any(|habit| habit.0 == command && stands(habit.2))
}

/// Whether words begin with a filter of ss: a keyword with its argument, which is no process id.
fn is_filter(command: &str, words: &[OsString]) -> bool {
    let word = |at: usize| {
        words
            .get(at)
            .and_then(|word| word.to_str())
            .filter(|word| !word.starts_with('-'))
    };
    let is_argument = |word: &str| word.parse::<u32>().is_err();
    word(0).is_some_and(|word| meaning(command, word).is_some()) && word(1).is_some_and(is_argument)
}

/// The word of an argument, and what follows it: the value of an option, or the rest of a filter. One
/// dash or two before a name are the same.
fn word(argument: &str) -> (&str, Option<&str>) {
    let argument = match argument.strip_prefix("--") {
        Some(name) if name.len() > 1 => &argument[1..],
        _ => argument,
    };
    match argument.split_once([' ', '=']) {
        Some((word, rest)) => (word, Some(rest)),
        None => (argument, None),
    }
}

/// The letters of an argument such as `-tulpn`.
fn letters(argument: &str) -> &str {
    let letters = argument.strip_prefix('-').filter(|letters| letters.is_ascii());
    letters.unwrap_or_default()
}

/// Replaces what means the same as options of this program by these.
pub fn replaced(arguments: Vec<OsString>) -> Vec<OsString> {
    let Some(at) = command_at(&arguments) else {
        return arguments;
    };
    let command = arguments[at].to_string_lossy().into_owned();
    let (before, own) = arguments.split_at(at + 1);
    let end = own.iter().position(|argument| argument == "--").unwrap_or(own.len());
    let (own, after) = own.split_at(end);
    let mut last = "";
    let options = own.iter().enumerate().flat_map(|(at, argument)| {
        let text = argument.to_str().unwrap_or_default();
        let last = std::mem::replace(&mut last, text);
        // A letter of ss takes no value: `-o state established`, `-t -p -n`.
        let is_alone = |at: usize| own.get(at).is_none_or(|next| next.to_string_lossy().starts_with('-'));
        let is_of_ss = |letter, at| {
            matches!(meaning(&command, letter), Some(InWord(_))) && (is_filter(&command, &own[at..]) || is_alone(at))
        };
        if let (Some(InWord(option)), true) = (meaning(&command, text), is_of_ss(text, at + 1)) {
            return as_option(option, None);
        }
        let is_value = if text.starts_with('-') {
            VALUE_WITH_DASH.contains(&last)
        } else {
            last == "--state"
                || last.starts_with('-')
                    && options(&command, last) == [last]
                    && !is_meant(&command, last)
                    && !is_of_ss(last, at)
        };
        if is_value || text.is_empty() {
            return vec![argument.clone()];
        }
        options(&command, text)
    });
    let mut options: Vec<OsString> = options.collect();
    if [IPV4, IPV6].map(|family| options.iter().any(|option| option == family)) == [true; 2] {
        options.retain(|option| option != IPV4 && option != IPV6);
        options.push(IPV4_AND_IPV6.into());
    }
    before.iter().chain(&options).chain(after).cloned().collect()
}

/// An option with its value; nothing if it is none.
fn as_option(option: &str, value: Option<&str>) -> Vec<OsString> {
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    let option = (!option.is_empty()).then(|| format!("{option}{value}").into());
    option.into_iter().collect()
}

/// The options that an argument stands for; otherwise the argument.
fn options(command: &str, argument: &str) -> Vec<OsString> {
    let (name, value) = word(argument);
    if let Some(Same(option)) = meaning(command, name) {
        return as_option(option, value);
    }
    let letters = letters(argument);
    let of_letter = |at: usize| match meaning(command, &format!("-{}", &letters[at..=at])) {
        Some(Same(option) | InWord(option)) => Some(option),
        _ => None,
    };
    let known: Vec<&str> = (0..letters.len()).map_while(of_letter).collect();
    let rest = &letters[known.len()..];
    // What begins with an option of this program may be its value: `-uroot`, `-ostate`.
    let is_own = |first: &str| match meaning(command, &format!("-{first}")) {
        Some(InWord(option)) => letters.len() == 1 || !rest.is_empty() || option.starts_with("--fields"),
        _ => false,
    };
    if known.is_empty() || is_own(&letters[..1]) {
        return vec![argument.into()];
    }
    // Digits are the value of the last letter, as in `-tp1234`; without such an option, what it is about.
    let is_number = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    let last = format!("-{}", &letters[known.len() - 1..known.len()]);
    let rest = match meaning(command, &last) {
        Some(InWord(_)) if is_number => Some(last + rest),
        _ if is_number => Some(rest.to_owned()),
        _ => (!rest.is_empty()).then(|| format!("-{rest}")),
    };
    let known = known.into_iter().filter(|option| !option.is_empty()).map(str::to_owned);
    known.chain(rest).map(OsString::from).collect()
}

/// What to type instead of one of these arguments, which were refused. Those of options may mean
/// something else, unless they are the ones that were: `refused` is how they begin.
pub fn hint(arguments: &[OsString], refused: Option<&str>) -> Option<String> {
    let at = command_at(arguments)?;
    let command = arguments[at].to_str()?;
    let of = |command: &str, argument: &str| {
        let letter = || meaning(command, &format!("-{}", letters(argument).get(..1)?));
        let is_sign = |first: &&str| !first.starts_with(char::is_alphanumeric);
        let sign = || meaning(command, argument.get(..1).filter(is_sign)?);
        match meaning(command, word(argument).0).or_else(letter).or_else(sign)? {
            Hint(hint) => Some(hint.to_owned()),
            Same(option) if !option.is_empty() && refused.is_some() && !arguments.iter().any(|one| one == option) => {
                Some(format!("here it is {option}"))
            }
            Same(_) | InWord(_) => None,
        }
    };
    let is_meant = |argument: &&str| match refused {
        Some(refused) => argument.starts_with(refused),
        None => !argument.starts_with('-'),
    };
    // A word behind an option may be its value, unless it is what was refused.
    let is_known = refused.is_some_and(|refused| !refused.is_empty());
    let begins = |word: &OsString, with: fn(char) -> bool| word.to_string_lossy().starts_with(with);
    let is_value = |pair: &[OsString]| begins(&pair[0], |c| c == '-') && begins(&pair[1], char::is_alphanumeric);
    let own = arguments[at..].windows(2).filter(|pair| is_known || !is_value(pair));
    let own = own.filter_map(|pair| pair[1].to_str());
    let of_own = own.filter(is_meant).find_map(|argument| of(command, argument));
    of_own.or_else(|| of(ON_COMMAND, command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    /// Check that each word of a command has one meaning.
    #[test]
    fn words_have_one_meaning() {
        let of = |habit: &'static (&str, &str, Means)| habit.1.split(' ').map(|word| (habit.0, word));
        let mut words: Vec<_> = HABITS.iter().flat_map(of).collect();
        words.sort_unstable();
        let all = words.len();
        words.dedup();
        assert_eq!(words.len(), all);
        assert!(words
            .iter()
            .all(|(_, word)| !word.starts_with("--") && !word.contains('=')));
    }

    /// Check that the value of an option is no word of a habit.
    #[test]
    fn values_are_no_habits() {
        let said = |typed: &str, refused| hint(&line(&format!("taskdiag {typed}")), refused);
        for typed in [
            "watch -o nosuch --limit 1",
            "watch -n 1 --history D",
            "net -p 1 --limit 2",
        ] {
            assert_eq!(said(typed, None), None, "{typed}");
        }
        assert_eq!(said("watch -p 1 --history D", Some("")), None);
        assert!(said("watch --limit 1 2", Some("2")).is_some_and(|hint| hint.contains("-d 1 -n 5")));
        assert!(said("files -u ^root", None).is_some_and(|hint| hint.contains("euid != 'root'")));
    }

    /// Check what habits are replaced by, and that options of this program and their values stay.
    #[test]
    fn habits_become_options() {
        for (typed, meant) in [
            ("sockets -tlnp", "sockets --tcp --listening"),
            (
                "sockets -tanop",
                "sockets --tcp --fields=+timer,timer_ns,retransmits_count",
            ),
            ("sockets -ulpn -p 1", "sockets --udp --listening -p 1"),
            ("sockets -u root", "sockets -u root"),
            ("sockets -uroot", "sockets -uroot"),
            ("sockets -ostate -opid", "sockets -ostate -opid"),
            ("sockets -tX", "sockets --tcp -X"),
            ("sockets -4t", "sockets --where=family == 'inet' --tcp"),
            ("sockets -46", "sockets --where=family in ('inet', 'inet6')"),
            (
                "sockets -4 -t6l",
                "sockets --tcp --listening --where=family in ('inet', 'inet6')",
            ),
            ("sockets -4 -6 -- 1", "sockets --where=family in ('inet', 'inet6') -- 1"),
            (
                "sockets -o state established",
                "sockets --fields=+timer,timer_ns,retransmits_count --state established",
            ),
            ("sockets -u state listening", "sockets --udp --state listening"),
            ("sockets -p state established", "sockets --state established"),
            ("sockets -o state 1234", "sockets -o state 1234"),
            ("sockets -o state -t", "sockets -o state --tcp"),
            ("sockets --state state", "sockets --state state"),
            ("sockets state connected", "sockets --state connected"),
            ("sockets --numeric --tcp", "sockets --tcp"),
            ("sockets state established -t", "sockets --state established --tcp"),
            (
                "sockets state time-wait state closing",
                "sockets --state time-wait --state closing",
            ),
            ("sockets --tcp state established", "sockets --tcp --state established"),
            ("sockets --by state --sort -state", "sockets --by state --sort -state"),
            ("sockets -- -t", "sockets -- -t"),
            ("sockets -t -l -n -p", "sockets --tcp --listening"),
            ("sockets -u -a", "sockets --udp"),
            ("sockets -t -p 1 -u root", "sockets --tcp -p 1 -u root"),
            ("inspect -p 1", "inspect 1"),
            ("inspect -p12", "inspect 12"),
            ("sockets -tp12", "sockets --tcp -p12"),
            ("cache -p12", "cache --of-process 12"),
            ("cache -p 1", "cache --of-process 1"),
            ("mem -d 1", "mem --watch 1"),
            ("files +D /srv -nP", "files --path /srv"),
            ("files +L1", "files --deleted"),
            ("files -p 1", "files -p 1"),
            ("top -bHcn1", "top --batch --threads -n1"),
            ("top -d1 -i", "top -d1 --where=cpu_percent > 0"),
            (
                "metrics -config.path=/a -children=false",
                "metrics --config=/a --children=false",
            ),
            ("metrics --config.path /a", "metrics --config /a"),
            ("metrics --config /a", "metrics --config /a"),
            ("ps -tanop", "ps -tanop"),
            ("--proc /proc sockets -t", "--proc /proc sockets --tcp"),
        ] {
            let replaced = replaced(line(&format!("taskdiag {typed}")));
            let words: Vec<&str> = replaced.iter().filter_map(|word| word.to_str()).collect();
            assert_eq!(words[1..].join(" "), meant, "{typed}");
        }
    }
}
