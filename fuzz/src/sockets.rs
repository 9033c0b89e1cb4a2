//! Messages of sock_diag, and lines of `/proc/net/raw`: any bytes are parsed or refused, and the
//! resulting rows of sockets have a value or none for each field.

use taskdiag_core::socket::diag::{self, List, Message, Messages};
use taskdiag_core::socket::{Kind, Row, Socket, SocketField};
use taskdiag_core::text::net;

pub fn run(data: &[u8]) {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let lists: Vec<List> = List::of(Kind::ALL).collect();
    let list = lists[usize::from(first) % lists.len()];
    for message in Messages::new(data) {
        if let Message::Socket(payload) = message {
            show(diag::socket(list, payload));
            let _ = diag::info_request(list, payload);
        }
    }
    show(diag::socket(list, data));
    show(net::raw(list.family, data));
}

fn show(socket: Option<Socket<'_>>) {
    let Some(socket) = socket else { return };
    let row = Row::new(&socket);
    for &field in SocketField::ALL {
        if let Ok(value) = row.value(field) {
            let _ = value.to_string();
        }
    }
}
