//! Free ports on the loopback address.

use std::net::{Ipv4Addr, TcpListener};

/// Below the range from which the kernel takes ports for outgoing connections, so nobody takes one by chance.
const FIRST: u16 = 21_000;
/// How many ports a slot has to itself.
const PER_SLOT: u16 = 64;

/// `count` ports that were free a moment ago, first from those of the slot. Whoever finds one taken after all asks again.
pub(crate) fn free(slot: u8, count: usize) -> Vec<u16> {
    let first = FIRST + u16::from(slot) * PER_SLOT;
    // Held until all are chosen: no port is given twice.
    let mut listeners: Vec<TcpListener> = (first..first + PER_SLOT)
        .filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok())
        .take(count)
        .collect();
    while listeners.len() < count {
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)) else { break };
        listeners.push(listener);
    }
    listeners.iter().filter_map(|listener| Some(listener.local_addr().ok()?.port())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_from_each_other_and_a_taken_one_is_not_given() {
        let ports = free(60, 3);
        assert_eq!(ports.len(), 3);
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0])).unwrap();
        let again = free(60, 3);
        assert!(!again.contains(&ports[0]));
        assert!(again[0] != again[1] && again[1] != again[2]);
    }
}
