//! The broker's answers to any request, by any viewer, about any record: an answer consists of
//! whole messages, which the client's decoder accepts, and holds nothing of what decides about
//! access.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    taskdiagd::fuzz::answers(data);
});
