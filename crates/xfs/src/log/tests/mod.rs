//! Tests of recovery, on logs built here record by record. Logs that Linux wrote are tested against Linux elsewhere.

mod builder;
mod ends;
mod hostile;
mod replayed;
