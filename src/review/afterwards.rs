//! What is left to do for a review when its answer is on the way. Owned by the thread that answers.

use std::any::Any;

/// Something whose drop takes time, put off until the answer is written. Dropped also when it could not be written.
#[derive(Default)]
pub(crate) struct Afterwards(Option<Box<dyn Any + Send>>);

impl Afterwards {
    pub(crate) fn drop_late(&mut self, thing: impl Any + Send) {
        self.0 = Some(Box::new(thing));
    }
}
