//! The commands that print the numbers of a page.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::present::Memory;
use crate::output::text;

/// A command, and a remark about it.
pub type Command = (String, &'static str);

/// Quotes a word of a command line for a shell.
fn quoted(word: &[u8]) -> String {
    text::written(|out| text::quote_for_shell(out, word))
}

/// A path that means the same in each directory, quoted.
fn everywhere(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    quoted(absolute.as_deref().unwrap_or(path).as_os_str().as_bytes())
}

/// The commands, by section of the page. `@time@` stands for the moment that was selected in a
/// chart.
pub fn of(history: Option<&Past<'_>>, memory: Memory, caches: &[PathBuf]) -> Vec<(&'static str, Vec<Command>)> {
    let cache = |path: &PathBuf| (format!("taskdiag cache -x -d 1 {}", everywhere(path)), "");
    let caches = caches.iter().map(cache).collect();
    let (field, option) = match memory {
        Memory::Pss => ("pss_bytes", "mem"),
        Memory::Rss => ("rss_bytes", "ps"),
    };
    let Some(past) = history else {
        let list = format!("taskdiag {option} --sort -{field}");
        let system = "taskdiag mem --system".to_owned();
        return vec![
            ("present", vec![(list.clone(), ""), (system, "")]),
            ("cache", caches),
            ("largest", vec![(list + " --limit 40", "")]),
            ("incidents", vec![("dmesg".to_owned(), "")]),
        ];
    };
    let dir = everywhere(past.directory);
    let at = |more: &str| format!("taskdiag {option} --history {dir} --at {} {more}", past.at);
    let then = |more: &str| format!("taskdiag ps --history {dir} --at @time@ {more}");
    let export = |table: &'static str| {
        let command = format!(
            "taskdiag history export {dir} --tier {} --from {} --to {} --parquet OUT",
            past.tier, past.from, past.to
        );
        (command, table)
    };
    let grows = "(time since each process began: the difference between two moments counts)";
    let processor = then("-o pid,comm,exe,utime_ns,stime_ns,unit,container_name --bytes");
    let moved = |fields: &str| {
        let command = then(&format!("-o pid,comm,exe,{fields},unit,container_name --bytes"));
        vec![(command, "(in all: the difference between two moments counts)")]
    };
    let of_memory = then(&format!("-o pid,comm,exe,{field},unit,container_name --bytes"));
    let of_memory = vec![(of_memory, ""), export("(all moments: tables processes and memory)")];
    let events = format!("taskdiag events --history {dir} --from {} --to {}", past.from, past.to);
    let of_oom = export("(tables cgroups and memory: oom_kill)");
    let present = at(&format!("--sort -{field}"));
    let of_moments = export("(all moments: tables processes and, for what ended, programs)");
    vec![
        ("processor", vec![(processor, grows), of_moments]),
        ("memory", of_memory),
        ("disk", moved("read_bytes,write_bytes")),
        ("network", moved("net_since_ns,net_sent_bytes,net_received_bytes")),
        ("incidents", vec![(events, ""), of_oom, ("dmesg".to_owned(), "")]),
        ("present", vec![(present, ""), export("(the machine: table memory)")]),
        ("ended", vec![export("(table programs)")]),
        ("largest", vec![(at(&format!("--sort -{field} --limit 40")), "")]),
        ("cache", caches),
    ]
}

/// The recording of a page. Times are in the form of options.
#[derive(Clone, Debug)]
pub struct Past<'a> {
    pub directory: &'a Path,
    /// The tier from which the charts were made.
    pub tier: &'a str,
    /// The start of the time that was read.
    pub from: String,
    /// The end of that time.
    pub to: String,
    /// The moment of the listed processes.
    pub at: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that commands name the same directory wherever they are typed.
    #[test]
    fn paths_are_absolute() {
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(
            everywhere(Path::new("a b")),
            quoted(here.join("a b").as_os_str().as_bytes())
        );
    }

    /// Check that a shell returns any quoted word unchanged.
    #[test]
    fn words_survive_shells() {
        for (word, quoted_word) in [
            (&b"/var/lib/taskdiag"[..], "/var/lib/taskdiag"),
            (b"", "''"),
            (b"a b;$(c)", "'a b;$(c)'"),
            (b"it's", r"'it'\''s'"),
            (b"\xff'\n\\", r"$'\xff\'\x0a\\'"),
        ] {
            assert_eq!(quoted(word), quoted_word);
            let script = format!("printf %s {quoted_word}");
            let output = std::process::Command::new("bash")
                .args(["-c", &script])
                .output()
                .expect("bash exists");
            assert_eq!(output.stdout, word, "{quoted_word}");
        }
    }
}
