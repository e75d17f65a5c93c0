//! The chunked transfer coding (RFC 9112, section 7.1), as a state machine that takes bytes in any portions.
//!
//! Pure and linear: every byte is looked at once, and nothing of the input is kept but the decoded body. Chunk extensions and
//! trailer fields are refused: no caller of ours sends them, and each is a known way to make two parsers disagree.

use super::http::Refusal;

/// LIMIT: hexadecimal digits of a chunk size: what a 64-bit number needs. More can only be padding, which is an endless line.
const SIZE_DIGITS: usize = 16;

/// Decodes one body.
pub(super) struct Chunked {
    state: State,
    limit: usize,
}

#[derive(Clone, Copy)]
enum State {
    Size { value: usize, digits: usize },
    SizeLineFeed { value: usize },
    Content { left: usize },
    ContentReturn,
    ContentLineFeed,
    FinalReturn,
    FinalLineFeed,
    Done,
}

impl Chunked {
    pub(super) fn new(limit: usize) -> Chunked {
        Chunked {
            state: State::Size {
                value: 0,
                digits: 0,
            },
            limit,
        }
    }

    /// Whether the body is complete; what follows then belongs to the next request.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Decodes `input` into `body` and says how much of it was used: all of it, unless the body ended within it.
    pub(super) fn feed(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut rest = input;
        loop {
            rest = if let State::Content { left } = self.state {
                let (content, after) = rest.split_at_checked(left).unwrap_or((rest, &[]));
                body.extend_from_slice(content);
                self.state = match left.saturating_sub(content.len()) {
                    0 => State::ContentReturn,
                    left => State::Content { left },
                };
                after
            } else {
                rest
            };
            let Some((byte, after)) = rest.split_first() else {
                break;
            };
            if self.is_done() {
                break;
            }
            self.state = self.step(*byte, body.len())?;
            rest = after;
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    /// One byte of everything but content.
    fn step(&self, byte: u8, decoded: usize) -> Result<State, Refusal> {
        match (self.state, byte) {
            (State::Size { value, digits }, b'\r') if digits > 0 => {
                Ok(State::SizeLineFeed { value })
            }
            (State::Size { value, digits }, _) if digits < SIZE_DIGITS => {
                let digit = char::from(byte)
                    .to_digit(16)
                    .and_then(|digit| usize::try_from(digit).ok());
                let digit = digit.ok_or(Refusal::Malformed(
                    "a chunk size is not a hexadecimal number",
                ))?;
                let value = value.saturating_mul(16).saturating_add(digit);
                // Checked before a single byte of the chunk is awaited.
                if value > self.limit.saturating_sub(decoded) {
                    return Err(Refusal::BodyTooLarge { limit: self.limit });
                }
                Ok(State::Size {
                    value,
                    digits: digits.saturating_add(1),
                })
            }
            (State::Size { .. }, _) => Err(Refusal::Malformed("a chunk size is too long")),
            (State::SizeLineFeed { value: 0 }, b'\n') => Ok(State::FinalReturn),
            (State::SizeLineFeed { value }, b'\n') => Ok(State::Content { left: value }),
            (State::ContentReturn, b'\r') => Ok(State::ContentLineFeed),
            (State::ContentLineFeed, b'\n') => Ok(State::Size {
                value: 0,
                digits: 0,
            }),
            (State::FinalReturn, b'\r') => Ok(State::FinalLineFeed),
            (State::FinalLineFeed, b'\n') => Ok(State::Done),
            (State::FinalReturn, _) => Err(Refusal::Malformed("trailer fields are not accepted")),
            _ => Err(Refusal::Malformed("a chunk is not followed by a line end")),
        }
    }
}
