//! The page: one file with styles, the library that draws charts, the project's script, and the
//! data.

use std::io;

use rustix::rand::{getrandom, GetRandomFlags};

const FRAME: &str = include_str!("frame.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Apache ECharts: see build.rs.
const CHARTS: &str = include_str!(concat!(env!("OUT_DIR"), "/charts.js"));

/// The page with this title and data. Its scripts carry a random number without which the browser
/// runs none: if part of a process's name were ever taken for a script, it would not run.
pub fn page(title: &str, data: &serde_json::Value) -> io::Result<String> {
    let mut random = [0_u8; 16];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(fill(FRAME, |name| match name {
        "nonce" => Some(nonce.clone()),
        "title" => Some(escaped(title)),
        "style" => Some(STYLE.to_owned()),
        "version" => Some(env!("CARGO_PKG_VERSION").to_owned()),
        "data" => Some(harmless(&data.to_string())),
        "charts" => Some(CHARTS.to_owned()),
        "script" => Some(SCRIPT.to_owned()),
        _ => None,
    }))
}

/// Replaces the places `@name@` in a frame with texts. The texts themselves are not searched for
/// places.
fn fill(frame: &str, text: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(2 << 20);
    let mut parts = frame.split('@');
    filled += parts.next().unwrap_or_default();
    while let Some(name) = parts.next() {
        match text(name) {
            Some(text) => {
                filled += &text;
                filled += parts.next().unwrap_or_default();
            }
            None => {
                filled.push('@');
                filled += name;
            }
        }
    }
    filled
}

/// Escapes text for an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Makes JSON safe to embed: nothing in it ends the surrounding element or begins a comment.
fn harmless(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no text escapes from its place, and that the data decode to what was written.
    #[test]
    fn texts_stay_in_their_places() {
        let hostile = "</script><script>alert(1)</script><!--@data@ \u{2028}&amp;\"'";
        let data = serde_json::json!({ "name": hostile });
        let page = page(hostile, &data).expect("random numbers");
        for once in ["<script", "</script"] {
            assert_eq!(page.matches(once).count(), 3, "{once}");
        }
        assert_eq!(page.matches("<!--").count(), 0);
        let (_, rest) = page.split_once("id=\"data\">").expect("data");
        let (text, _) = rest.split_once("</script>").expect("an end");
        assert_eq!(serde_json::from_str::<serde_json::Value>(text).expect("JSON"), data);
        assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
    }

    /// Check that the page loads nothing: every address in it names a standard or a licence.
    #[test]
    fn nothing_is_loaded() {
        let page = page("", &serde_json::json!({})).expect("random numbers");
        for attribute in [" src=", " href=", "@import", "url("] {
            let ours: String = [FRAME, STYLE, SCRIPT].concat();
            assert!(!ours.contains(attribute), "{attribute}");
        }
        assert!(page.contains("default-src 'none'"));
        assert!(page.len() < 1_500_000, "{}", page.len());
    }
}
