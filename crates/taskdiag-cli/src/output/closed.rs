//! Whether standard output was closed when the program started.
//!
//! Before `main`, Rust's runtime opens /dev/null for standard descriptors that are closed, so that
//! no other file gets their numbers. Writing to it seems to succeed. So the check is made before
//! the runtime starts.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the program started.
pub fn is_closed() -> bool {
    IS_CLOSED.load(Ordering::Relaxed)
}

extern "C" fn look() {
    let is_closed = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_err();
    IS_CLOSED.store(is_closed, Ordering::Relaxed);
}

// The C library calls each function in this section once, before `main`. They may make system
// calls.
#[used]
#[allow(unsafe_code)]
#[link_section = ".init_array"]
static LOOK: extern "C" fn() = look;
