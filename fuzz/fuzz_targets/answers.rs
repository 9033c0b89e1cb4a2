//! The broker's answers to any request, from any viewer, about any record. An answer consists of
//! whole messages that the client's decoder accepts, and contains nothing that decides about
//! access.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    taskdiagd::fuzz::answers(data);
});
