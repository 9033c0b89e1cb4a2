//! Prints the sockets that wait for a peer, in all network namespaces, and their owners.

use std::ops::ControlFlow;

use taskdiag::sockets::{Kind, Request, Row, SocketField};
use taskdiag::{Field, Handle, Query};

fn main() -> taskdiag::Result<()> {
    let mut handle = Handle::new();
    let processes = handle.query(&Query::processes().fields(Field::StartNs | Field::Comm))?;
    let mut request = Request::default();
    request.kinds = Kind::Tcp | Kind::Udp;
    request.listening = true;
    let answer = handle.sockets(&processes, &request, |socket| {
        let row = Row::new(socket);
        let shown = [SocketField::Protocol, SocketField::LocalAddr, SocketField::LocalPort].map(|field| {
            let value = row.value(field).ok();
            value.map_or("-".to_owned(), |value| value.to_string())
        });
        print!("{}", shown.join(" "));
        for owner in socket.owners.ok().flatten().unwrap_or_default() {
            print!(" {}/{}", owner.pid, owner.fd);
        }
        println!();
        ControlFlow::Continue(())
    })?;
    if answer.namespaces_denied > 0 {
        eprintln!("{} network namespaces may not be entered", answer.namespaces_denied);
    }
    Ok(())
}
