//! `Serialize` for sockets, in the shape of the rows of `taskdiag sockets --json`. Fields that were
//! not asked for are left out.

use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::{Owner, Row, Socket, SocketField};
use crate::serialize::{cell, row};
use crate::value::Value;

impl Serialize for Socket<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let socket = Row::new(self);
        let of_field = |&field: &SocketField| cell(field.name(), socket.value(field));
        row(serializer, SocketField::ALL.iter().filter_map(of_field))
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("pid", &self.pid)?;
        if let Ok(comm) = &self.comm {
            map.serialize_entry("comm", &Value::Text(comm))?;
        }
        map.serialize_entry("fd", &self.fd)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::super::tests::listener;
    use super::*;
    use crate::absent::Absent;

    /// Check the shape of a socket: with an owner, with values that it does not have, and without
    /// fields that were not asked for.
    #[test]
    fn sockets_have_the_shape_of_the_commands_json() {
        let owners = [Owner::new(7, 3, Ok(b"nginx")), Owner::new(8, 4, Err(Absent::NotAsked))];
        let socket = Socket {
            owners: Ok(Some(&owners)),
            info: Err(Absent::NotAsked),
            mark: Err(Absent::Denied),
            ..listener()
        };
        let value = to_value(socket).expect("sockets are JSON");
        assert_eq!(
            value["owners"],
            json!([{"pid": 7, "comm": "nginx", "fd": 3}, {"pid": 8, "fd": 4}])
        );
        assert_eq!((&value["state"], &value["local_port"]), (&json!("LISTEN"), &json!(80)));
        assert_eq!(
            (&value["absent"]["mark"], &value["absent"]["path"]),
            (&json!("denied"), &json!("none"))
        );
        assert!(value.get("rtt_ns").is_none() && value["absent"].get("rtt_ns").is_none());
        let socket = Socket {
            owners: Err(Absent::NotAsked),
            ..socket
        };
        let value = to_value(socket).expect("sockets are JSON");
        assert!(value.get("owners").is_none() && value["absent"].get("owners").is_none());
    }
}
