//! Unit files of systemd (systemd.syntax(7)).

use crate::names;

/// A setting: `key=value` in a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The section, without brackets.
    pub section: Vec<u8>,
    /// The text before the equals sign.
    pub key: Vec<u8>,
    /// The text after it, with its continuation lines and without surrounding spaces.
    pub value: Vec<u8>,
}

/// The settings of a file, in its order. Skips everything else.
pub fn settings(text: &[u8]) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut section = Vec::new();
    let mut lines = text.split(|&byte| byte == b'\n');
    while let Some(line) = lines.next() {
        let line = line.trim_ascii();
        if let Some(name) = line.strip_prefix(b"[").and_then(|line| line.strip_suffix(b"]")) {
            section = name.to_vec();
            continue;
        }
        if is_comment(line) {
            continue;
        }
        let Some(equals) = line.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let (key, mut part) = (line[..equals].trim_ascii(), line[equals + 1..].trim_ascii());
        let mut value = Vec::new();
        // A backslash at the end of a line stands for a space. Comments in between do not end the
        // setting.
        while let Some(begun) = part.strip_suffix(b"\\") {
            value.extend_from_slice(begun);
            value.push(b' ');
            let next = lines
                .by_ref()
                .map(<[u8]>::trim_ascii)
                .find(|line| !is_comment(line) || line.is_empty());
            part = next.unwrap_or_default();
        }
        value.extend_from_slice(part);
        settings.push(Setting {
            section: section.clone(),
            key: key.to_vec(),
            value: value.trim_ascii().to_vec(),
        });
    }
    settings
}

fn is_comment(line: &[u8]) -> bool {
    matches!(line.first(), None | Some(b'#' | b';'))
}

/// The final value of a list setting: values add up, and an empty one clears those before it.
/// `None` if it is not set.
pub fn list(settings: &[Setting], section: &[u8], key: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut values: Option<Vec<Vec<u8>>> = None;
    for setting in settings
        .iter()
        .filter(|setting| setting.section == section && setting.key == key)
    {
        let values = values.get_or_insert_with(Vec::new);
        if setting.value.is_empty() {
            values.clear();
        } else {
            values.push(setting.value.clone());
        }
    }
    values
}

/// The final value of any other setting: the last one counts. `None` if it is not set, or empty.
pub fn last<'a>(settings: &'a [Setting], section: &[u8], key: &[u8]) -> Option<&'a [u8]> {
    let mut found = settings.iter().rev();
    let setting = found.find(|setting| setting.section == section && setting.key == key)?;
    (!setting.value.is_empty()).then_some(&setting.value)
}

/// The name of the template of an instance: `getty@.service` for `getty@tty1.service`.
pub fn template(unit: &[u8]) -> Option<Vec<u8>> {
    let at = unit.iter().position(|&byte| byte == b'@')?;
    let dot = unit.iter().rposition(|&byte| byte == b'.')?;
    (at + 1 < dot).then(|| [&unit[..=at], &unit[dot..]].concat())
}

/// The drop-in directories of `a-b.service`: `a-b.service.d`, `a-.service.d`, `service.d`.
pub fn drop_in_names(name: &[u8]) -> Vec<Vec<u8>> {
    let Some(dot) = name.iter().rposition(|&byte| byte == b'.') else {
        return Vec::new();
    };
    let (prefix, kind) = (&name[..dot], &name[dot..]);
    let dashes = (0..prefix.len())
        .rev()
        .filter(|&at| prefix[at] == b'-' && at + 1 < prefix.len());
    let mut names = vec![[name, b".d"].concat()];
    names.extend(dashes.map(|at| [&prefix[..=at], kind, b".d"].concat()));
    names.push([&kind[1..], b".d"].concat());
    names
}

/// The set that lists of capabilities form. Lists add up. A list that begins with `~` is
/// subtracted; from all capabilities if it is the first. `None` if a name is unknown.
pub fn capabilities(lists: &[Vec<u8>]) -> Option<u64> {
    let mut set = None;
    for list in lists {
        let (is_taken, words) = match list.strip_prefix(b"~") {
            Some(words) => (true, words),
            None => (false, &list[..]),
        };
        let mut these = 0;
        let words = words.split(|byte| byte.is_ascii_whitespace());
        for word in words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty()) {
            these |= 1 << names::capability(std::str::from_utf8(word).ok()?)?;
        }
        set = Some(match (set, is_taken) {
            (None, true) => !these,
            (Some(set), true) => set & !these,
            (before, false) => before.unwrap_or(0) | these,
        });
    }
    Some(set.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &[u8] = b"# a comment\n[Unit]\nDescription=x = y\n\n[Service]\n User = www-data \n\
        ExecStart=/bin/a \\\n# in between\n  --b \\\n  c\nCapabilityBoundingSet=CAP_A CAP_B\nNonsense\n\
        CapabilityBoundingSet=CAP_C\nUser=nobody\n; another comment\nGroup=\n";

    /// Check sections, continuation lines, comments, and final values.
    #[test]
    fn files_have_settings() {
        let settings = settings(TEXT);
        let last = |section: &str, key: &str| last(&settings, section.as_bytes(), key.as_bytes());
        assert_eq!(last("Unit", "Description"), Some(&b"x = y"[..]));
        assert_eq!(last("Service", "User"), Some(&b"nobody"[..]));
        assert_eq!(last("Service", "ExecStart"), Some(&b"/bin/a  --b  c"[..]));
        assert_eq!((last("Unit", "User"), last("Service", "Group")), (None, None));
        let list = |settings: &[Setting]| list(settings, b"Service", b"CapabilityBoundingSet");
        assert_eq!(list(&settings), Some(vec![b"CAP_A CAP_B".to_vec(), b"CAP_C".to_vec()]));
        let reset = super::settings(b"[Service]\nCapabilityBoundingSet=CAP_A\nCapabilityBoundingSet=\n");
        assert_eq!((list(&reset), list(&[])), (Some(vec![]), None));
    }

    /// Check that a line that continues at the end of the file ends there.
    #[test]
    fn lines_end_with_the_file() {
        let settings = settings(b"[A]\nb=c\\");
        assert_eq!((settings.len(), &settings[0].value[..]), (1, &b"c"[..]));
    }

    /// Check the templates of instances.
    #[test]
    fn instances_have_templates() {
        assert_eq!(template(b"getty@tty1.service").as_deref(), Some(&b"getty@.service"[..]));
        assert_eq!(template(b"a@b@c.d.service").as_deref(), Some(&b"a@.service"[..]));
        assert_eq!((template(b"cron.service"), template(b"getty@.service")), (None, None));
    }

    /// Check that lists of capabilities add up, and are subtracted from all or from those before.
    #[test]
    fn capabilities_add_up() {
        let of = |lists: &[&str]| capabilities(&lists.iter().map(|list| list.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(of(&["CAP_CHOWN cap_kill"]), Some(1 | 1 << 5));
        assert_eq!(of(&["CAP_CHOWN", "CAP_KILL"]), Some(1 | 1 << 5));
        assert_eq!(of(&["~CAP_CHOWN"]), Some(!1));
        assert_eq!(of(&["CAP_CHOWN CAP_KILL", "~CAP_KILL"]), Some(1));
        assert_eq!((of(&[]), of(&["CAP_WHATEVER"])), (Some(0), None));
    }

    /// Check the names of drop-in directories, and that a name that is not a unit's has none.
    #[test]
    fn drop_ins_have_directories() {
        let names = drop_in_names(b"a-b.service");
        assert_eq!(
            names,
            ["a-b.service.d", "a-.service.d", "service.d"].map(|name| name.as_bytes().to_vec())
        );
        assert!(drop_in_names(b"x").is_empty());
    }

    proptest! {
        /// Check that any bytes can be parsed.
        #[test]
        fn any_bytes_can_be_parsed(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let settings = settings(&text);
            prop_assert!(settings.len() <= text.len());
            let _ = (template(&text), drop_in_names(&text), capabilities(&[text]));
        }
    }
}
