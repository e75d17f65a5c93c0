//! Tests of the writers.
