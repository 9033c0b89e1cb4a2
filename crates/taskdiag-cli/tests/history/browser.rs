//! Headless Chromium, controlled through two pipes with its DevTools protocol: JSON messages, each
//! ending in a NUL.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde_json::{json, Value};

/// The maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page.
pub struct Browser {
    child: Child,
    stdin: ChildStdin,
    messages: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    is_loaded: bool,
    complaints: Vec<String>,
    /// The browser's profile.
    directory: PathBuf,
}

impl Browser {
    /// Starts Debian's Chromium.
    pub fn start() -> Browser {
        let directory = std::env::temp_dir().join(format!(
            "taskdiag-chromium-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        // The protocol uses descriptors 3 and 4. The sandbox does not work for root; the browser
        // only opens a page of the test.
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                      --disable-background-networking --disable-component-update --remote-debugging-pipe --window-size=1400,1000 \
                      --user-data-dir=\"$0\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(&directory)
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("a shell");
        let stdin = child.stdin.take().expect("a pipe");
        let stdout = child.stdout.take().expect("a pipe");
        let mut browser = Browser {
            child,
            stdin,
            messages: messages(stdout),
            session: None,
            sent: 0,
            is_loaded: false,
            complaints: Vec::new(),
            directory,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.ask(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        assert!(browser.session.is_some(), "{attached}");
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser.ask("Performance.enable", json!({ "timeDomain": "threadTicks" }));
        browser
    }

    /// The processor time that the page's main thread, which runs scripts and computes the layout,
    /// has used.
    pub fn cpu_ms(&mut self) -> f64 {
        let answer = self.ask("Performance.getMetrics", json!({}));
        let metrics = answer["metrics"].as_array().expect("metrics");
        let found = metrics.iter().find(|metric| metric["name"] == "TaskDuration");
        found.and_then(|metric| metric["value"].as_f64()).expect("a number") * 1e3
    }

    /// Opens a page, and waits until it has loaded.
    pub fn open(&mut self, page: &Path) {
        let url = format!("file://{}", page.display());
        self.is_loaded = false;
        let answer = self.ask("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{answer}");
        while !self.is_loaded {
            self.next();
        }
    }

    /// The value of an expression.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.ask(
            "Runtime.evaluate",
            json!({ "expression": expression, "returnByValue": true }),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Clicks the middle of an element.
    #[track_caller]
    pub fn click(&mut self, element: &str) {
        let middle = format!(
            "(() => {{ const found = {element}; found.scrollIntoView({{ block: 'center' }}); const box = found.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        let at = self.evaluate(&middle);
        self.click_at(at[0].as_f64().expect("x"), at[1].as_f64().expect("y"));
    }

    /// Clicks somewhere on the page.
    pub fn click_at(&mut self, x: f64, y: f64) {
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            let event = json!({ "type": kind, "x": x, "y": y, "button": if kind == "mouseMoved" { "none" } else { "left" }, "buttons": buttons, "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    /// Makes the window so wide, with the system's colours dark or light, as on a telephone or a desk.
    pub fn set_window(&mut self, width: u32, is_dark: bool) {
        let size = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } });
        self.ask("Emulation.setEmulatedMedia", json!({ "features": [scheme] }));
    }

    /// Saves a picture of the whole page for people.
    pub fn screenshot(&mut self, name: &str) {
        let picture = self.ask("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        save(&format!("{name}.png"), &picture);
    }

    /// Saves the page as printed.
    pub fn print(&mut self, name: &str) {
        let paper = self.ask("Page.printToPDF", json!({ "printBackground": true }));
        save(&format!("{name}.pdf"), &paper);
    }

    /// The errors of the page, and its requests to other hosts.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.stdin
            .write_all(format!("{message}\0").as_bytes())
            .expect("Chromium runs; dev/report-test.sh installs it");
        loop {
            let answer = self.next();
            if answer["id"] == self.sent {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let message = self.messages.recv_timeout(PATIENCE).expect("an answer of Chromium");
        let params = &message["params"];
        self.is_loaded |= message["method"] == "Page.loadEventFired";
        let is_complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Log.entryAdded" | "Page.javascriptDialogOpening") => true,
            Some("Runtime.consoleAPICalled") => ["error", "warning", "assert"]
                .iter()
                .any(|kind| params["type"] == *kind),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                !url.starts_with("file:") && !url.starts_with("data:")
            }
            _ => false,
        };
        if is_complaint {
            self.complaints.push(message.to_string());
        }
        message
    }
}

fn messages(stdout: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(stdout).split(0) {
            let Ok(message) = message else { return };
            let message = serde_json::from_slice(&message).expect("JSON");
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Saves the data of an answer in the directory that `TASKDIAG_PICTURES` names, if set.
fn save(name: &str, answer: &Value) {
    let bytes = STANDARD.decode(answer["data"].as_str().expect("data")).expect("base64");
    assert!(bytes.len() > 10_000, "{name}: {} bytes", bytes.len());
    if let Some(directory) = std::env::var_os("TASKDIAG_PICTURES") {
        fs::write(Path::new(&directory).join(name), bytes).expect("a directory");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
