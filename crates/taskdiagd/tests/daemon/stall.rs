//! A file system (FUSE) that never answers: reading a page of its file waits, and so does closing
//! the file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The mounted file system. It is unmounted when this is dropped.
pub struct Stall {
    directory: PathBuf,
    /// How many descriptors of the file are waiting to be closed.
    closing: Arc<AtomicUsize>,
}

impl Stall {
    /// Mounts it for all users.
    pub fn mount() -> Stall {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("taskdiag-stall-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .expect("this test needs /dev/fuse");
        let options = format!(
            "fd={},rootmode=40000,user_id=0,group_id=0,allow_other\0",
            device.as_raw_fd()
        );
        let target = format!("{}\0", directory.display());
        // SAFETY: texts that end with a NUL.
        let mounted = unsafe {
            libc::mount(
                c"stall".as_ptr(),
                target.as_ptr().cast(),
                c"fuse".as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                options.as_ptr().cast(),
            )
        };
        assert_eq!(mounted, 0, "mounting: {}", std::io::Error::last_os_error());
        let closing = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&closing);
        thread::spawn(move || serve(device, &count));
        Stall { directory, closing }
    }

    /// Waits until `processes` processes wait for the file to be closed.
    pub fn wait_until_closing(&self, processes: usize) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.closing.load(Ordering::Relaxed) < processes {
            assert!(
                Instant::now() < until,
                "fewer than {processes} processes close the file"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its file.
    pub fn file(&self) -> PathBuf {
        self.directory.join("file")
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        let target = format!("{}\0", self.directory.display());
        // SAFETY: a text that ends with a NUL.
        unsafe { libc::umount2(target.as_ptr().cast(), libc::MNT_FORCE | libc::MNT_DETACH) };
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Answers the requests that open and map the file, and no others.
fn serve(mut device: File, closing: &AtomicUsize) {
    const LOOKUP: u32 = 1;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const READ: u32 = 15;
    const FLUSH: u32 = 25;
    const INIT: u32 = 26;
    let mut request = vec![0_u8; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        assert!(len >= 40);
        let (operation, unique, node) = (number(4), request[8..16].to_vec(), number(16));
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        // struct fuse_attr: inode, size, blocks, three times, their nanoseconds, mode, links,
        // owner, device, block size, flags.
        let attributes = |node: u32| {
            let mode = if node == 1 { 0o40755 } else { 0o100_644 };
            let mut all = vec![node, 0, 1 << 20, 0, 2048, 0];
            all.extend([0; 9]);
            all.extend([mode, 1, 0, 0, 0, 4096, 0]);
            all
        };
        let body = match operation {
            INIT => {
                let mut out = vec![7, 31, 65536, 0, 0, 1 << 17];
                out.extend([0; 10]);
                words(&out)
            }
            LOOKUP => {
                let mut out = vec![2, 0, 1, 0, 3600, 0, 3600, 0, 0, 0];
                out.extend(attributes(2));
                words(&out)
            }
            GETATTR => {
                let mut out = vec![3600, 0, 0, 0];
                out.extend(attributes(node));
                words(&out)
            }
            OPEN => words(&[0, 0, 0, 0]),
            READ => continue,
            FLUSH => {
                closing.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            // FORGET, BATCH_FORGET and INTERRUPT have no answer.
            2 | 42 | 36 => continue,
            _ => Vec::new(),
        };
        // Any other request is not implemented.
        let error: i32 = if body.is_empty() { -libc::ENOSYS } else { 0 };
        let mut answer = words(&[16 + body.len() as u32, error as u32]);
        answer.extend(&unique);
        answer.extend(body);
        let _ = device.write_all(&answer);
    }
}
