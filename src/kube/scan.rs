//! Cuts the items out of a list while its text is arriving.
//!
//! Pure. Knows only as much JSON as it takes to find where an item begins and ends: strings, escapes and brackets. Whether an
//! item is JSON is found out by who reads it; what stands around the items is kept, with an empty array in their place, and
//! read at the end. One buffer holds one item after the other, so that a list costs the memory of its longest item and leaves
//! no holes behind. A general JSON reader was tried here: it took six times the time and twice the memory.

/// LIMIT: bytes around the items: kind, version, and a token for the next page of less than a kilobyte.
const FRAME_LIMIT: usize = 1024 * 1024;

/// What the buffer may keep between items. Most objects are smaller.
const ITEM_KEPT: usize = 64 * 1024;

/// How deep an item lies: in the array in the object.
const ITEMS_DEPTH: usize = 2;

#[derive(Default)]
pub(super) struct Scanner {
    /// The list without its items.
    frame: Vec<u8>,
    item: Vec<u8>,
    depth: usize,
    in_items: bool,
    in_string: bool,
    escaped: bool,
    limit: usize,
}

/// Why a text cannot be cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// An item, or what stands around the items, is longer than allowed.
    TooLong,
    /// Brackets do not match, or something other than an object is in the array.
    NoList,
    /// What the reader of an item said.
    Item(String),
}

impl Scanner {
    /// `limit` is the longest item, in bytes.
    pub(super) fn new(limit: usize) -> Scanner {
        Scanner {
            limit,
            ..Scanner::default()
        }
    }

    /// Takes the next piece and hands on every item that is complete with it.
    pub(super) fn feed(
        &mut self,
        piece: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), Flaw> {
        let mut rest = piece;
        while !rest.is_empty() {
            let plain = rest.iter().position(|byte| self.matters(*byte));
            let (run, tail) = rest
                .split_at_checked(plain.unwrap_or(rest.len()))
                .unwrap_or((rest, &[]));
            self.keep(run)?;
            rest = tail;
            if let Some((byte, tail)) = rest.split_first() {
                self.step(*byte, each)?;
                rest = tail;
            }
        }
        Ok(())
    }

    /// True when the list is complete.
    pub(super) fn is_complete(&self) -> bool {
        self.depth == 0 && !self.frame.is_empty()
    }

    /// The list with an empty array for its items.
    pub(super) fn frame(&self) -> &[u8] {
        &self.frame
    }

    fn matters(&self, byte: u8) -> bool {
        if self.escaped {
            return true;
        }
        match byte {
            b'"' => true,
            b'\\' => self.in_string,
            b'{' | b'}' | b'[' | b']' => !self.in_string,
            _ => false,
        }
    }

    fn step(
        &mut self,
        byte: u8,
        each: &mut dyn FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), Flaw> {
        if self.in_string {
            self.keep(&[byte])?;
            self.in_string = byte != b'"' || self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            return Ok(());
        }
        match byte {
            b'"' => {
                self.keep(&[byte])?;
                self.in_string = true;
            }
            b'{' | b'[' => {
                let begins_items = byte == b'[' && self.depth == 1 && self.is_behind_items();
                self.depth += 1;
                self.keep(&[byte])?;
                self.in_items |= begins_items;
            }
            _ => {
                if self.in_items && self.depth == ITEMS_DEPTH {
                    self.in_items = false;
                }
                self.keep(&[byte])?;
                self.depth = self.depth.checked_sub(1).ok_or(Flaw::NoList)?;
                if self.in_items && self.depth == ITEMS_DEPTH {
                    each(&self.item).map_err(Flaw::Item)?;
                    self.item.clear();
                    self.item.shrink_to(ITEM_KEPT);
                }
            }
        }
        Ok(())
    }

    /// Adds to the item at hand, or to what stands around the items.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Flaw> {
        if !self.in_items {
            self.frame.extend_from_slice(bytes);
            let short = self.frame.len() <= FRAME_LIMIT;
            return if short { Ok(()) } else { Err(Flaw::TooLong) };
        }
        if self.depth == ITEMS_DEPTH {
            // Between items. Items that are no objects, such as null, are never sent and would go unnoticed.
            let separates = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
            let separated = bytes.iter().all(separates);
            return if separated { Ok(()) } else { Err(Flaw::NoList) };
        }
        self.item.extend_from_slice(bytes);
        let short = self.item.len() <= self.limit;
        if short { Ok(()) } else { Err(Flaw::TooLong) }
    }

    /// True if the value that begins now belongs to the key `items`.
    fn is_behind_items(&self) -> bool {
        let before = self.frame.trim_ascii_end();
        let key = before.strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        let before = key.and_then(|key| key.strip_suffix(b"\"items\""));
        let last = before.and_then(|before| before.trim_ascii_end().last());
        matches!(last, Some(b'{' | b','))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts a text that arrives in pieces of one size.
    fn cut(text: &str, size: usize) -> Result<(Vec<String>, String, bool), Flaw> {
        let mut scanner = Scanner::new(50);
        let mut items = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            scanner.feed(piece, &mut |item| {
                items.push(String::from_utf8(item.to_vec()).unwrap());
                Ok(())
            })?;
        }
        let frame = String::from_utf8(scanner.frame().to_vec()).unwrap();
        Ok((items, frame, scanner.is_complete()))
    }

    #[test]
    fn items_are_cut_out_wherever_the_pieces_end() {
        for (text, items, frame) in [
            (
                r#"{"kind":"L","metadata":{"x":"y"},"items":[{"a":1},{"b":[{"c":"}]\"\\"}]}]}"#,
                &[r#"{"a":1}"#, r#"{"b":[{"c":"}]\"\\"}]}"#][..],
                r#"{"kind":"L","metadata":{"x":"y"},"items":[]}"#,
            ),
            (
                "{ \"items\" : [ {\"ü\": \"\\u00fc\"} ,\n {} ] , \"metadata\": {\"items\": [1]} }\n",
                &["{\"ü\": \"\\u00fc\"}", "{}"],
                "{ \"items\" : [] , \"metadata\": {\"items\": [1]} }\n",
            ),
            (
                r#"{"items":[],"a":["items"]}"#,
                &[],
                r#"{"items":[],"a":["items"]}"#,
            ),
            (r#"{"items":null}"#, &[], r#"{"items":null}"#),
            (
                r#"{"x\"items":[{}],"my items":[{}]}"#,
                &[],
                r#"{"x\"items":[{}],"my items":[{}]}"#,
            ),
        ] {
            for size in 1..=text.len() {
                let (cut_items, cut_frame, complete) = cut(text, size).unwrap();
                assert_eq!(cut_items, items, "{size}: {text}");
                assert_eq!(cut_frame, frame, "{size}: {text}");
                assert!(complete, "{size}: {text}");
            }
        }
    }

    #[test]
    fn what_is_no_list_or_too_long_is_refused() {
        let long = format!(r#"{{"items":[{{"a":"{}"}}]}}"#, "x".repeat(60));
        let frame = format!(r#"{{"a":"{}"}}"#, "x".repeat(FRAME_LIMIT));
        for (text, flaw) in [
            (r#"{"items":[null]}"#, Flaw::NoList),
            (r#"{"items":["a"]}"#, Flaw::NoList),
            ("}", Flaw::NoList),
            (&long, Flaw::TooLong),
            (&frame, Flaw::TooLong),
        ] {
            let found = cut(text, 7);
            let shown = text.get(..20).unwrap_or(text);
            assert_eq!(found.err(), Some(flaw), "{shown}");
        }
        for text in ["", r#"{"items":[{"a":1}"#, r#"{"a":"}"#] {
            assert!(!cut(text, 3).unwrap().2, "{text}");
        }
    }
}
