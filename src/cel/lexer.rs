//! Source text → tokens of CEL, with the place of each.
//!
//! Called by the parser, on any thread; owns nothing. It decodes literals completely (escapes, hexadecimal, raw and triple-quoted
//! strings, bytes), so that nobody after it looks at source text. It never fails silently: whatever is no token is an error with
//! its place.

use super::ParseError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    /// The magnitude; a minus sign is the parser's business, since the smallest integer has no positive counterpart.
    Int(u64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Symbol(&'static str),
    End,
}

/// Longest first, since the first that fits is taken.
const SYMBOLS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", ".", ",", "[", "]", "{", "}", "(", ")", "<", ">", "-", "!",
    "?", ":", "+", "*", "/", "%",
];

pub(super) struct Lexer {
    source: Vec<char>,
    at: usize,
}

impl Lexer {
    pub(super) fn new(source: &str) -> Lexer {
        Lexer {
            source: source.chars().collect(),
            at: 0,
        }
    }

    /// All tokens with their places, counted in characters; the last is `End`.
    pub(super) fn tokens(mut self) -> Result<Vec<(Token, usize)>, ParseError> {
        let mut tokens = Vec::new();
        loop {
            self.skip_blank();
            let start = self.at;
            let token = self.token()?;
            let last = token == Token::End;
            tokens.push((token, start));
            if last {
                return Ok(tokens);
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.source.get(self.at + ahead).copied()
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> String {
        let mut text = String::new();
        while let Some(c) = self.peek(0).filter(|c| fits(*c)) {
            text.push(c);
            self.at += 1;
        }
        text
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars()
            .enumerate()
            .all(|(index, c)| self.peek(index) == Some(c))
    }

    fn error(&self, at: usize, words: impl Into<String>) -> ParseError {
        ParseError::at(&self.source, at, words.into())
    }

    fn skip_blank(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}'));
            if !self.starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        let Some(first) = self.peek(0) else {
            return Ok(Token::End);
        };
        let second = self.peek(1);
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if let Some((raw, bytes, quote)) = self.string_start() {
            return self.string(raw, bytes, quote);
        }
        if first.is_ascii_alphabetic() || first == '_' {
            return Ok(Token::Name(
                self.take_while(|c| c.is_ascii_alphanumeric() || c == '_'),
            ));
        }
        match SYMBOLS.iter().find(|symbol| self.starts_with(symbol)) {
            Some(symbol) => {
                self.at += symbol.len();
                Ok(Token::Symbol(symbol))
            }
            None => Err(self.error(self.at, format!("{first:?} begins nothing"))),
        }
    }

    fn number(&mut self) -> Result<Token, ParseError> {
        let start = self.at;
        let invalid = |lexer: &Lexer, kind: &str| {
            lexer.error(start, format!("the {kind} literal is out of range"))
        };
        let unsigned = |lexer: &mut Lexer| {
            let found = matches!(lexer.peek(0), Some('u' | 'U'));
            lexer.at += usize::from(found);
            found
        };
        if self.starts_with("0x") && self.peek(2).is_some_and(|c| c.is_ascii_hexdigit()) {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            let value = u64::from_str_radix(&digits, 16).map_err(|_| invalid(self, "int"))?;
            return Ok(if unsigned(self) {
                Token::Uint(value)
            } else {
                Token::Int(value)
            });
        }
        let mut text = self.take_while(|c| c.is_ascii_digit());
        let mut fraction = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            fraction = true;
            self.at += 1;
            text.push('.');
            text.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
        if matches!(self.peek(0), Some('e' | 'E'))
            && self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit())
        {
            fraction = true;
            for _ in 0..=signed {
                text.extend(self.peek(0));
                self.at += 1;
            }
            text.push_str(&self.take_while(|c| c.is_ascii_digit()));
        }
        if fraction {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(Token::Double(value)),
                _ => Err(invalid(self, "double")),
            };
        }
        let value = text.parse().map_err(|_| invalid(self, "int"))?;
        Ok(if unsigned(self) {
            Token::Uint(value)
        } else {
            Token::Int(value)
        })
    }

    /// Whether a string begins here: raw, bytes, and where its quote is.
    fn string_start(&self) -> Option<(bool, bool, usize)> {
        let mut raw = false;
        let mut bytes = false;
        // Both prefixes in the order of the grammar: bytes first.
        let mut ahead = 0;
        if matches!(self.peek(ahead), Some('b' | 'B')) {
            bytes = true;
            ahead += 1;
        }
        if matches!(self.peek(ahead), Some('r' | 'R')) {
            raw = true;
            ahead += 1;
        }
        matches!(self.peek(ahead), Some('"' | '\'')).then_some((raw, bytes, ahead))
    }

    fn string(&mut self, raw: bool, bytes: bool, quote: usize) -> Result<Token, ParseError> {
        let start = self.at;
        self.at += quote;
        let mark = self.peek(0).unwrap_or('"');
        let triple: String = std::iter::repeat_n(mark, 3).collect();
        let closing = if self.starts_with(&triple) {
            triple
        } else {
            mark.to_string()
        };
        self.at += closing.len();
        let mut content: Vec<u8> = Vec::new();
        while !self.starts_with(&closing) {
            let Some(c) = self.peek(0) else {
                return Err(self.error(start, "the string has no end"));
            };
            if closing.len() == 1 && matches!(c, '\n' | '\r') {
                return Err(self.error(start, "the string has no end on its line"));
            }
            self.at += 1;
            if c == '\\' && !raw {
                self.escape(bytes, &mut content)?;
            } else {
                let mut buffer = [0; 4];
                content.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
        }
        self.at += closing.len();
        if bytes {
            return Ok(Token::Bytes(content));
        }
        String::from_utf8(content)
            .map(Token::Text)
            .map_err(|_| self.error(start, "the string is not UTF-8"))
    }

    /// After a backslash. In bytes, `\x` and octal escapes are octets; in strings they are code points.
    fn escape(&mut self, bytes: bool, content: &mut Vec<u8>) -> Result<(), ParseError> {
        let start = self.at.saturating_sub(1);
        let invalid = |lexer: &Lexer| lexer.error(start, "this escape sequence does not exist");
        let c = self.peek(0).ok_or_else(|| invalid(self))?;
        self.at += 1;
        let simple = match c {
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            '\\' | '?' | '"' | '\'' | '`' => u8::try_from(c).ok(),
            _ => None,
        };
        if let Some(octet) = simple {
            content.push(octet);
            return Ok(());
        }
        let (radix, digits) = match c {
            'x' | 'X' => (16, 2),
            'u' if !bytes => (16, 4),
            'U' if !bytes => (16, 8),
            '0'..='3' => {
                self.at -= 1;
                (8, 3)
            }
            _ => return Err(invalid(self)),
        };
        let mut number: u32 = 0;
        for _ in 0..digits {
            let digit = self.peek(0).and_then(|c| c.to_digit(radix));
            let digit = digit.ok_or_else(|| invalid(self))?;
            number = number.wrapping_mul(radix).wrapping_add(digit);
            self.at += 1;
        }
        if bytes {
            content.push(u8::try_from(number).map_err(|_| invalid(self))?);
            return Ok(());
        }
        let c = char::from_u32(number).ok_or_else(|| invalid(self))?;
        let mut buffer = [0; 4];
        content.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
        Ok(())
    }
}
