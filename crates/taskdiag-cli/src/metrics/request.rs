//! HTTP requests and responses: bytes in, bytes out.

use std::time::Duration;

use super::exposition::Format;

/// The maximum length of a request.
pub const MOST_BYTES: usize = 8 << 10;

/// The maximum number of headers.
const MOST_HEADERS: usize = 64;

/// The requested page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// All metrics.
    Metrics,
    /// A page for people who open the address in a browser.
    Index,
    /// Whether the exporter is alive.
    Healthy,
}

/// A request that can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub page: Page,
    pub format: Format,
    /// Send only the head of the response.
    pub is_head: bool,
    /// How long the client will wait.
    pub timeout: Option<Duration>,
}

/// The result of parsing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request is incomplete.
    Partial,
    Request(Request),
    /// The request is refused with this status.
    Refused(Status),
}

/// The status of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Status(pub u16, pub &'static str);

pub const OK: Status = Status(200, "OK");
pub const BAD_REQUEST: Status = Status(400, "Bad Request");
pub const NOT_FOUND: Status = Status(404, "Not Found");
pub const NOT_ALLOWED: Status = Status(405, "Method Not Allowed");
pub const TOO_LARGE: Status = Status(431, "Request Header Fields Too Large");
pub const UNAVAILABLE: Status = Status(503, "Service Unavailable");

/// Parses what has arrived of a request.
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(TOO_LARGE),
        Err(_) => return Parsed::Refused(BAD_REQUEST),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Parsed::Refused(NOT_ALLOWED),
    };
    let path = request.path.unwrap_or_default();
    let page = match path.split('?').next().unwrap_or_default() {
        "/metrics" => Page::Metrics,
        "/" => Page::Index,
        "/-/healthy" => Page::Healthy,
        _ => return Parsed::Refused(NOT_FOUND),
    };
    let header = |name: &'static str| {
        let found = request.headers.iter();
        let found = found.filter(move |header| header.name.eq_ignore_ascii_case(name));
        found.filter_map(|header| std::str::from_utf8(header.value).ok())
    };
    let seconds = header("X-Prometheus-Scrape-Timeout-Seconds").find_map(|text| text.trim().parse::<f64>().ok());
    Parsed::Request(Request {
        page,
        format: format(header("Accept")),
        is_head,
        timeout: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
    })
}

/// The preferred format according to Accept (RFC 9110, 12.5.1). The default is Prometheus's text.
fn format<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
    let (mut open, mut plain) = (0.0_f64, 0.0_f64);
    for range in accept.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let (mut quality, mut has_version) = (1.0, true);
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else {
                continue;
            };
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "version" => has_version = value.trim() == "1.0.0",
                _ => {}
            }
        }
        match kind.as_str() {
            "application/openmetrics-text" if has_version => open = open.max(quality),
            "text/plain" | "text/*" | "*/*" => plain = plain.max(quality),
            _ => {}
        }
    }
    if open > 0.0 && open >= plain {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    }
}

/// The head of a response after which the connection is closed.
pub fn head(status: Status, content_type: &str, length: usize) -> Vec<u8> {
    let allow = if status == NOT_ALLOWED {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
        status.0, status.1
    )
    .into_bytes()
}

/// The page for people.
pub const INDEX: &str =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>taskdiag metrics</title></head>\n\
    <body><h1>taskdiag metrics</h1><p><a href=\"/metrics\">Metrics</a></p></body></html>\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Parsed {
        parse(text.replace('\n', "\r\n").as_bytes())
    }

    /// Check pages, methods, and the header with Prometheus's timeout.
    #[test]
    fn requests_are_parsed() {
        let request = Request {
            page: Page::Metrics,
            format: Format::Prometheus,
            is_head: false,
            timeout: None,
        };
        assert_eq!(of("GET /metrics HTTP/1.1\nHost: x\n\n"), Parsed::Request(request));
        assert_eq!(
            of("HEAD /metrics?x=1 HTTP/1.0\nx-prometheus-scrape-timeout-seconds: 9.5\n\n"),
            Parsed::Request(Request {
                is_head: true,
                timeout: Some(Duration::from_millis(9500)),
                ..request
            })
        );
        for (text, parsed) in [
            ("GET /metrics HTTP/1.1\nHost: x\n", Parsed::Partial),
            ("", Parsed::Partial),
            ("GET /other HTTP/1.1\n\n", Parsed::Refused(NOT_FOUND)),
            ("GET /metrics/ HTTP/1.1\n\n", Parsed::Refused(NOT_FOUND)),
            ("POST /metrics HTTP/1.1\n\n", Parsed::Refused(NOT_ALLOWED)),
            ("\u{1}\u{2}\n\n", Parsed::Refused(BAD_REQUEST)),
            ("GET /metrics HTTP/9.9\n\n", Parsed::Refused(BAD_REQUEST)),
        ] {
            assert_eq!(of(text), parsed, "{text:?}");
        }
        let many = format!("GET / HTTP/1.1\n{}\n", "a: b\n".repeat(100));
        assert_eq!(of(&many), Parsed::Refused(TOO_LARGE));
        let long = format!("GET / HTTP/1.1\na: {}", "b".repeat(MOST_BYTES));
        assert_eq!(of(&long), Parsed::Refused(TOO_LARGE));
    }

    /// Check that the preferred format is used, and Prometheus's text by default.
    #[test]
    fn the_preferred_format_is_given() {
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            // Prometheus 2.42
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1", Format::Prometheus),
            (
                "Application/OpenMetrics-Text; q=0.4, text/plain; q=0.5",
                Format::Prometheus,
            ),
            ("application/openmetrics-text; q=0, */*", Format::Prometheus),
            (
                "text/html;q=x,,;;=,application/openmetrics-text;q=0.1",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(format(std::iter::once(accept)), expected, "{accept}");
        }
    }

    proptest! {
        /// Check that any bytes are parsed as a request, as a part of one, or refused.
        #[test]
        fn any_bytes_are_parsed(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "(GET|HEAD|X) ?/?[a-z%?]{0,9} HTTP/1.[01]\r\n([A-Za-z-]{1,9}: ?[ -~]{0,20}\r\n){0,70}(\r\n)?") {
            let _ = parse(&bytes);
            let _ = parse(text.as_bytes());
            let long = [text.as_bytes(), &vec![b'a'; MOST_BYTES]].concat();
            prop_assert!(parse(&long) != Parsed::Partial);
        }
    }
}
