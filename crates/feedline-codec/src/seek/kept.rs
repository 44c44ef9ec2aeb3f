//! Tables that a thread keeps: most files have the codes of the standard.

use std::cell::RefCell;
use std::rc::Rc;

use super::huffman::Code;

const MOST: usize = 8;

/// Tables of codes, made once.
#[derive(Debug)]
pub(super) struct Kept<T>(RefCell<Vec<(Code, Rc<T>)>>);

impl<T> Kept<T> {
    pub const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The table of a code.
    pub fn table(&self, code: &Code, make: impl FnOnce(&Code) -> T) -> Rc<T> {
        let mut kept = self.0.borrow_mut();
        if let Some((_, table)) = kept.iter().find(|(known, _)| known == code) {
            return Rc::clone(table);
        }
        let table = Rc::new(make(code));
        if kept.len() == MOST {
            kept.remove(MOST / 2);
        }
        kept.push((code.clone(), Rc::clone(&table)));
        table
    }
}
