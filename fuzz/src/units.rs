//! systemd unit files and unit names: any bytes can be parsed. Settings stay the same if they are
//! printed and parsed again.

use taskdiag_core::text::unit::{self, Setting};

pub fn run(data: &[u8]) {
    let settings = unit::settings(data);
    assert!(settings.len() <= data.len());
    for setting in settings.iter().take(32) {
        printed(setting);
        resolved(&settings, setting);
    }
    name(data);
    capabilities(data);
}

fn printed(setting: &Setting) {
    let Setting { section, key, value } = setting;
    for part in [section, key, value] {
        assert!(!part.contains(&b'\n'));
    }
    assert!(!key.contains(&b'='));
    // Values that continue on the next line, and keys that look like a section.
    if value.ends_with(b"\\") || key.starts_with(b"[") {
        return;
    }
    let text = [b"[", &section[..], b"]\n", key, b"=", value, b"\n"].concat();
    assert_eq!(unit::settings(&text), std::slice::from_ref(setting));
}

/// The last value of a setting counts; for lists, the values after the last empty one.
fn resolved(settings: &[Setting], setting: &Setting) {
    let Setting { section, key, .. } = setting;
    let values = settings
        .iter()
        .filter(|other| (&other.section, &other.key) == (section, key))
        .map(|other| &other.value[..]);
    let values: Vec<&[u8]> = values.collect();
    let last = values.last().copied().filter(|value| !value.is_empty());
    assert_eq!(unit::last(settings, section, key), last);
    let forgotten = values.iter().rposition(|value| value.is_empty()).map_or(0, |at| at + 1);
    let list = unit::list(settings, section, key).expect("it is set");
    assert_eq!(list, values[forgotten..]);
}

fn name(name: &[u8]) {
    if let Some(template) = unit::template(name) {
        assert!(template.len() < name.len());
        assert_eq!(unit::template(&template), None);
    }
    let names = unit::drop_in_names(name);
    assert!(names.iter().all(|directory| directory.ends_with(b".d")));
    assert_eq!(names.is_empty(), !name.contains(&b'.'));
}

/// A capability that is removed from a set is not in it.
fn capabilities(text: &[u8]) {
    let lists: Vec<Vec<u8>> = text.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let Some(set) = unit::capabilities(&lists) else { return };
    for list in lists.iter().filter(|list| !list.starts_with(b"~")) {
        let taken = [b"~", &list[..]].concat();
        let own = unit::capabilities(std::slice::from_ref(list)).expect("its names are known");
        let without = unit::capabilities(&[&lists[..], &[taken]].concat()).expect("its names are known");
        assert_eq!(without, set & !own);
    }
}
