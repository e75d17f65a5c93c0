//! Tokens → tree. The macros among the calls are expanded next door, in `macros.rs`.
//!
//! Any thread; owns the tokens while it runs. A hand-written descent with one function for all binary operators, so that an input
//! nested as deep as allowed needs little stack. It never recurses deeper than its limits say, and never panics.

use super::ParseError;
use super::lexer::{Lexer, Token};
use super::syntax::{Element, Entry, Expr, Literal, Mode, Node};

/// How deep parentheses, calls and literals may be nested. People write five levels; the API server takes 250. A level needs about
/// seven calls of the parser, of which a kilobyte each is the most that was seen, and a thread has 2 MiB.
const MOST_NESTING: usize = 64;

/// The height of a tree, to which a chain such as `a.b.c` or `1 + 1 + 1` adds a level for each link. Two calls for each level, of
/// at most two kilobytes each, are well below 2 MiB, too.
const MOST_HEIGHT: usize = 150;

/// Words that name nothing, but may be fields.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Words of the lexer: not even fields.
const KEYWORDS: &[&str] = &["in", "true", "false", "null"];

/// Binary operators, the name CEL gives them, and how tight they bind.
const OPERATORS: &[(&str, &str, u8)] = &[
    ("<", "_<_", 1),
    ("<=", "_<=_", 1),
    (">=", "_>=_", 1),
    (">", "_>_", 1),
    ("==", "_==_", 1),
    ("!=", "_!=_", 1),
    ("+", "_+_", 2),
    ("-", "_-_", 2),
    ("*", "_*_", 3),
    ("/", "_/_", 3),
    ("%", "_%_", 3),
];

pub(super) fn parse(source: &str) -> Result<Expr, ParseError> {
    let mut parser = Parser {
        source: source.chars().collect(),
        tokens: Lexer::new(source).tokens()?,
        next: 0,
        nesting: 0,
    };
    let expr = parser.expr()?;
    if *parser.peek() != Token::End {
        return Err(parser.expected("an operator or the end"));
    }
    Ok(expr)
}

pub(super) struct Parser {
    source: Vec<char>,
    tokens: Vec<(Token, usize)>,
    next: usize,
    nesting: usize,
}

pub(super) type Parsed = Result<Expr, ParseError>;

impl Parser {
    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        self.tokens
            .get(self.next + ahead)
            .map_or(&Token::End, |(token, _)| token)
    }

    fn place(&self) -> usize {
        let last = self.tokens.last();
        self.tokens.get(self.next).or(last).map_or(0, |(_, at)| *at)
    }

    pub(super) fn error(&self, at: usize, words: &str) -> ParseError {
        ParseError::at(&self.source, at, words.to_owned())
    }

    pub(super) fn expected(&self, what: &str) -> ParseError {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Name(name) => format!("`{name}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            _ => "a literal".to_owned(),
        };
        self.error(self.place(), &format!("expected {what}, found {found}"))
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.peek(), Token::Symbol(found) if *found == symbol);
        self.next += usize::from(found);
        found
    }

    fn require(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.accept(symbol) {
            return Ok(());
        }
        Err(self.expected(&format!("`{symbol}`")))
    }

    pub(super) fn make(&self, at: usize, node: Node) -> Parsed {
        let highest = node.children().iter().map(|child| child.height).max();
        let height = highest.unwrap_or(0) + 1;
        if height > MOST_HEIGHT {
            return Err(ParseError::beyond(format!(
                "an expression of more than {MOST_HEIGHT} levels"
            )));
        }
        Ok(Expr { node, at, height })
    }

    fn call(&self, at: usize, function: &str, arguments: Vec<Expr>) -> Parsed {
        let function = function.to_owned();
        let target = None;
        self.make(
            at,
            Node::Call {
                function,
                target,
                arguments,
            },
        )
    }

    fn expr(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MOST_NESTING {
            return Err(ParseError::beyond(format!(
                "an expression nested deeper than {MOST_NESTING} levels"
            )));
        }
        let at = self.place();
        let condition = self.any()?;
        let result = if self.accept("?") {
            let then = self.any()?;
            self.require(":")?;
            let otherwise = self.expr()?;
            let parts = Box::new([condition, then, otherwise]);
            self.make(at, Node::Choice(parts))
        } else {
            Ok(condition)
        };
        self.nesting -= 1;
        result
    }

    fn any(&mut self) -> Parsed {
        let at = self.place();
        let mut operands = vec![self.all()?];
        while self.accept("||") {
            operands.push(self.all()?);
        }
        self.chain(at, operands, Node::Any)
    }

    fn all(&mut self) -> Parsed {
        let at = self.place();
        let mut operands = vec![self.binary(1)?];
        while self.accept("&&") {
            operands.push(self.binary(1)?);
        }
        self.chain(at, operands, Node::All)
    }

    fn chain(&self, at: usize, mut operands: Vec<Expr>, node: fn(Vec<Expr>) -> Node) -> Parsed {
        match operands.pop() {
            Some(only) if operands.is_empty() => Ok(only),
            last => {
                operands.extend(last);
                self.make(at, node(operands))
            }
        }
    }

    fn operator(&self) -> Option<(&'static str, u8)> {
        match self.peek() {
            Token::Symbol(symbol) => OPERATORS
                .iter()
                .find(|(text, _, _)| text == symbol)
                .map(|(_, name, binding)| (*name, *binding)),
            Token::Name(name) if name == "in" => Some(("@in", 1)),
            _ => None,
        }
    }

    /// Precedence climbing over the relations and the arithmetic.
    fn binary(&mut self, least: u8) -> Parsed {
        let mut left = self.unary()?;
        while let Some((name, binding)) = self.operator().filter(|(_, binding)| *binding >= least) {
            let at = self.place();
            self.next += 1;
            let right = self.binary(binding + 1)?;
            left = self.call(at, name, vec![left, right])?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.place();
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            // The minus of a number belongs to the number.
            while !(symbol == "-" && matches!(self.peek_at(1), Token::Int(_) | Token::Double(_)))
                && self.accept(symbol)
            {
                count += 1;
            }
            if count > 0 {
                let operand = self.member()?;
                // An even number of them is nothing at all to the API server.
                return if count % 2 == 0 {
                    Ok(operand)
                } else {
                    self.call(at, function, vec![operand])
                };
            }
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let mut operand = self.primary()?;
        loop {
            let at = self.place();
            if self.accept(".") {
                let optional = self.accept("?");
                let field = self.field()?;
                if !optional && self.accept("(") {
                    let arguments = self.arguments(")")?;
                    operand = self.member_call(at, operand, field, arguments)?;
                    continue;
                }
                let mode = if optional {
                    Mode::Optional
                } else {
                    Mode::Plain
                };
                let operand_box = Box::new(operand);
                let node = Node::Select {
                    operand: operand_box,
                    field,
                    mode,
                };
                operand = self.make(at, node)?;
            } else if self.accept("[") {
                let optional = self.accept("?");
                let index = Box::new(self.expr()?);
                self.require("]")?;
                let operand_box = Box::new(operand);
                let node = Node::Index {
                    operand: operand_box,
                    index,
                    optional,
                };
                operand = self.make(at, node)?;
            } else if matches!(self.peek(), Token::Symbol("{")) {
                return Err(self.error(at, "no message type is declared, so none can be made"));
            } else {
                return Ok(operand);
            }
        }
    }

    fn field(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            Token::Name(name) if !KEYWORDS.contains(&name.as_str()) => {
                let name = name.clone();
                self.next += 1;
                Ok(name)
            }
            _ => Err(self.expected("the name of a field")),
        }
    }

    fn arguments(&mut self, closing: &str) -> Result<Vec<Expr>, ParseError> {
        let mut arguments = Vec::new();
        if self.accept(closing) {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expr()?);
            if self.accept(closing) {
                return Ok(arguments);
            }
            if !self.accept(",") {
                return Err(self.expected(&format!("`,` or `{closing}`")));
            }
        }
    }

    fn primary(&mut self) -> Parsed {
        let at = self.place();
        if self.accept("(") {
            let expr = self.expr()?;
            self.require(")")?;
            return Ok(expr);
        }
        if self.accept("[") {
            return self.list(at);
        }
        if self.accept("{") {
            return self.map(at);
        }
        if self.accept(".") || matches!(self.peek(), Token::Name(_)) {
            return self.name(at);
        }
        let negative = self.accept("-");
        let literal = match self.peek() {
            Token::Int(magnitude) => Literal::Int(self.int(at, negative, *magnitude)?),
            Token::Double(value) => Literal::Double(if negative { -value } else { *value }),
            Token::Uint(value) if !negative => Literal::Uint(*value),
            Token::Text(text) if !negative => Literal::Text(text.clone()),
            Token::Bytes(bytes) if !negative => Literal::Bytes(bytes.clone()),
            _ => return Err(self.expected("a value")),
        };
        self.next += 1;
        self.make(at, Node::Literal(literal))
    }

    fn int(&self, at: usize, negative: bool, magnitude: u64) -> Result<i64, ParseError> {
        let value = i128::from(magnitude);
        i64::try_from(if negative { -value } else { value })
            .map_err(|_| self.error(at, "the int literal is out of range"))
    }

    fn name(&mut self, at: usize) -> Parsed {
        let Token::Name(name) = self.peek() else {
            return Err(self.expected("a name"));
        };
        let name = name.clone();
        let literal = match name.as_str() {
            "true" => Some(Literal::Bool(true)),
            "false" => Some(Literal::Bool(false)),
            "null" => Some(Literal::Null),
            _ => None,
        };
        if RESERVED.contains(&name.as_str()) || name == "in" {
            return Err(self.error(at, &format!("`{name}` is a reserved word")));
        }
        self.next += 1;
        if let Some(literal) = literal {
            return self.make(at, Node::Literal(literal));
        }
        if !self.accept("(") {
            return self.make(at, Node::Name(name));
        }
        let arguments = self.arguments(")")?;
        match (name.as_str(), arguments.as_slice()) {
            ("has", [argument]) => self.presence(at, argument.clone()),
            _ => self.call(at, &name, arguments),
        }
    }

    fn list(&mut self, at: usize) -> Parsed {
        let mut elements = Vec::new();
        while !self.accept("]") {
            let optional = self.accept("?");
            let value = self.expr()?;
            elements.push(Element { optional, value });
            if !self.accept(",") {
                self.require("]")?;
                break;
            }
        }
        self.make(at, Node::List(elements))
    }

    fn map(&mut self, at: usize) -> Parsed {
        let mut entries = Vec::new();
        while !self.accept("}") {
            let optional = self.accept("?");
            let key = self.expr()?;
            self.require(":")?;
            let value = self.expr()?;
            entries.push(Entry {
                optional,
                key,
                value,
            });
            if !self.accept(",") {
                self.require("}")?;
                break;
            }
        }
        self.make(at, Node::Map(entries))
    }
}
