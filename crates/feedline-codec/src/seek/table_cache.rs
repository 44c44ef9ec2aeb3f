//! Caches decoding tables per thread. Most files use the codes of the standard.
//!
//! In: a header. Out: the tables for each block of an MCU.

use std::cell::RefCell;
use std::rc::Rc;

use super::frame::{Component, JpegFrame};
use super::huffman::{Code, Symbols};

/// Upper limit of tables per kind and thread. A picture uses at most four.
const CAPACITY: usize = 8;

/// Tables of codes, made once.
#[derive(Debug)]
pub(super) struct TableCache<T>(RefCell<Vec<(Code, Rc<T>)>>);

impl<T> TableCache<T> {
    pub(super) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// The table of a code.
    pub(super) fn table(&self, code: &Code, make: impl FnOnce(&Code) -> T) -> Rc<T> {
        // A short list is searched faster than a hash of the code could be computed.
        let mut tables = self.0.borrow_mut();
        let (code, table) = match tables.iter().position(|(known, _)| known == code) {
            Some(place) => tables.remove(place),
            None => (code.clone(), Rc::new(make(code))),
        };
        if tables.len() == CAPACITY {
            tables.remove(0);
        }
        // The most recently used table is at the end.
        tables.push((code, Rc::clone(&table)));
        table
    }
}

/// One block of an MCU: its component, and the tables of its codes.
#[derive(Debug)]
pub(super) struct Block<T> {
    pub component: usize,
    pub dc: Rc<Symbols>,
    pub ac: Rc<T>,
}

impl<T> Block<T> {
    /// The blocks of an MCU, in their order in the data.
    pub(super) fn of_mcu(
        frame: &JpegFrame,
        dc: &TableCache<Symbols>,
        ac: &TableCache<T>,
        make: fn(&Code) -> T,
    ) -> Vec<Self> {
        let has_codes = "a frame has the codes that its components name";
        let of_component = |(component, c): (usize, &Component)| {
            let dc = dc.table(frame.dc[usize::from(c.dc)].as_ref().expect(has_codes), Symbols::new);
            let ac = ac.table(frame.ac[usize::from(c.ac)].as_ref().expect(has_codes), make);
            (0..c.blocks()).map(move |_| Self { component, dc: Rc::clone(&dc), ac: Rc::clone(&ac) })
        };
        frame.components.iter().enumerate().flat_map(of_component).collect()
    }
}
