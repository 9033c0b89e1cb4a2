//! What counting network traffic costs those who have some.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use taskdiag::Handle;

use crate::case::{call, ratio, Bound, Case, Contender, Counts, Run, Stage, Value};
use crate::Result;

/// How often a packet goes back and forth in a run, and its size.
const TRIPS: usize = 30_000;
const PACKET: [u8; 64] = [1; 64];

pub fn cases() -> Vec<Case> {
    let title = format!("{TRIPS} small packets back and forth on the loopback interface");
    let mut case = Case::new(title, || Ok(Stage::default())).counting(Counts::Nothing, "");
    case.note = format!(
        "{} bytes, between two threads on one processor: four calls a round trip. Each run lasts as long as its round trips.",
        PACKET.len()
    );
    let udp = || -> Result<[UdpSocket; 2]> {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
        one.connect(other.local_addr()?)?;
        other.connect(one.local_addr()?)?;
        Ok([one, other])
    };
    let tcp = || -> Result<[TcpStream; 2]> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let one = TcpStream::connect(listener.local_addr()?)?;
        let other = listener.accept()?.0;
        one.set_nodelay(true)?;
        other.set_nodelay(true)?;
        Ok([one, other])
    };
    for (name, is_counted) in [("uncounted", false), ("counted", true)] {
        case.contenders.push(trips(
            format!("UDP, {name}"),
            is_counted,
            udp,
            |socket, is_sent, bytes| {
                if is_sent {
                    socket.send(bytes)
                } else {
                    socket.recv(bytes)
                }
            },
        ));
        case.contenders.push(trips(
            format!("TCP, {name}"),
            is_counted,
            tcp,
            |stream, is_sent, bytes| {
                if is_sent {
                    (&*stream).write(bytes)
                } else {
                    (&*stream).read(bytes)
                }
            },
        ));
    }
    for protocol in ["UDP", "TCP"] {
        let claim = format!("{protocol} while somebody counts, in times the time while nobody does");
        let names = ["counted", "uncounted"].map(|name| format!("{protocol}, {name}"));
        case.targets
            .push(ratio(claim, Value::Time, &names[0], &[&names[1]], Bound::AtMost(1.02)));
    }
    vec![case]
}

/// Sends a packet, or receives one.
type Move<T> = fn(&T, bool, &mut [u8]) -> std::io::Result<usize>;

fn trips<T: Send + 'static>(name: String, is_counted: bool, pair: fn() -> Result<[T; 2]>, step: Move<T>) -> Contender {
    call(name, "", move |_| {
        Ok(Box::new(move || {
            let mut handle = Handle::new();
            if is_counted {
                handle.count_network()?;
            }
            let [one, other] = pair()?;
            let free = sched_getaffinity(None)?;
            let mut alone = CpuSet::new();
            alone.set(0);
            sched_setaffinity(None, &alone)?;
            let echo = spawn(move || {
                let mut packet = PACKET;
                while step(&other, false, &mut packet).is_ok_and(|len| len > 1)
                    && step(&other, true, &mut packet).is_ok()
                {}
            });
            // What ended before leaves the processor.
            sleep(Duration::from_millis(50));
            let mut packet = PACKET;
            let start = Instant::now();
            for _ in 0..TRIPS {
                step(&one, true, &mut packet)?;
                step(&one, false, &mut packet)?;
            }
            let took = start.elapsed();
            step(&one, true, &mut packet[..1])?;
            sched_setaffinity(None, &free)?;
            echo.join().map_err(|_| "the other end panicked")?;
            Ok(Run { took, ..Run::default() })
        }))
    })
}
