//! Index of the black-box tests.
