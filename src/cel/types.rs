//! The types of CEL as the checker sees them, and when a value of one may stand where another is wanted.
//!
//! Pure, any thread. `Types` owns what is known of the type variables while one expression is checked. The rules are those of the
//! API server's checker: `dyn` goes with everything, and of two types that go together a variable keeps the more general one.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Dyn,
    /// Everything without parts: `int`, `kubernetes.Quantity`, the type of `request`.
    Named(&'static str),
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    Denoted(Box<Type>),
    Variable(usize),
}

pub(super) const BOOL: Type = Type::Named("bool");
pub(super) const INT: Type = Type::Named("int");
pub(super) const NULL: Type = Type::Named("null");

/// Which take no `null`.
const PRIMITIVES: &[&str] = &["bool", "int", "uint", "double", "string", "bytes"];

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn | Type::Variable(_) => f.write_str("dyn"),
            Type::Named(name) => f.write_str(name),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(value) => write!(f, "optional_type({value})"),
            Type::Denoted(value) => write!(f, "type({value})"),
        }
    }
}

impl Type {
    pub(super) fn list(element: Type) -> Type {
        Type::List(Box::new(element))
    }

    pub(super) fn map(key: Type, value: Type) -> Type {
        Type::Map(Box::new(key), Box::new(value))
    }

    pub(super) fn optional(value: Type) -> Type {
        Type::Optional(Box::new(value))
    }

    /// Reads one type in the prefix notation of the table of signatures ("map string list A"); A and B become fresh variables.
    pub(super) fn read(words: &mut dyn Iterator<Item = &'static str>, fresh: [usize; 2]) -> Type {
        match words.next() {
            None | Some("dyn") => Type::Dyn,
            Some("A") => Type::Variable(fresh[0]),
            Some("B") => Type::Variable(fresh[1]),
            Some("list") => Type::list(Type::read(words, fresh)),
            Some("optional") => Type::optional(Type::read(words, fresh)),
            Some("type") => Type::Denoted(Box::new(Type::read(words, fresh))),
            Some("map") => {
                let key = Type::read(words, fresh);
                Type::map(key, Type::read(words, fresh))
            }
            Some(name) => Type::Named(name),
        }
    }

    /// Whether this is the same as the other, or says less.
    fn is_as_general(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Dyn | Type::Variable(_), _) | (Type::Denoted(_), Type::Denoted(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                a.is_as_general(b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => a.is_as_general(c) && b.is_as_general(d),
            _ => self == other,
        }
    }

    fn mentions(&self, variable: usize) -> bool {
        match self {
            Type::Variable(own) => *own == variable,
            Type::List(a) | Type::Optional(a) | Type::Denoted(a) => a.mentions(variable),
            Type::Map(a, b) => a.mentions(variable) || b.mentions(variable),
            Type::Dyn | Type::Named(_) => false,
        }
    }
}

/// What the variables stand for.
#[derive(Clone, Default)]
pub(super) struct Types {
    known: Vec<Option<Type>>,
}

impl Types {
    pub(super) fn fresh(&mut self) -> usize {
        self.known.push(None);
        self.known.len() - 1
    }

    fn known(&self, variable: usize) -> Option<Type> {
        self.known.get(variable).cloned().flatten()
    }

    /// Replaces the variables that are known.
    pub(super) fn resolve(&self, t: &Type) -> Type {
        match t {
            Type::Variable(variable) => match self.known(*variable) {
                Some(known) => self.resolve(&known),
                None => t.clone(),
            },
            Type::List(a) => Type::list(self.resolve(a)),
            Type::Optional(a) => Type::optional(self.resolve(a)),
            Type::Denoted(a) => Type::Denoted(Box::new(self.resolve(a))),
            Type::Map(a, b) => Type::map(self.resolve(a), self.resolve(b)),
            Type::Dyn | Type::Named(_) => t.clone(),
        }
    }

    /// Whether each of `given` may stand where `wanted` is asked for. What was learnt is kept only if all fit.
    pub(super) fn fit(&mut self, given: &[Type], wanted: &[Type]) -> bool {
        let before = self.clone();
        let fits =
            given.len() == wanted.len() && given.iter().zip(wanted).all(|(a, b)| self.assign(a, b));
        if !fits {
            *self = before;
        }
        fits
    }

    fn assign(&mut self, given: &Type, wanted: &Type) -> bool {
        if let Type::Variable(variable) = wanted {
            match self.substitute(given, *variable) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Variable(variable) = given {
            return self.substitute(wanted, *variable).0;
        }
        match (given, wanted) {
            (Type::Dyn, _) | (_, Type::Dyn) | (Type::Denoted(_), Type::Denoted(_)) => true,
            (Type::Named("null"), Type::Named(name)) => !PRIMITIVES.contains(name),
            (Type::Named("null"), Type::Optional(_)) => true,
            (Type::Named(a), Type::Named(b)) => a == b,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.assign(a, b)
            }
            (Type::Map(a, b), Type::Map(c, d)) => self.assign(a, c) && self.assign(b, d),
            _ => false,
        }
    }

    /// Whether the variable may stand for the type, and whether it already stood for something.
    fn substitute(&mut self, t: &Type, variable: usize) -> (bool, bool) {
        if *t == Type::Variable(variable) {
            return (true, false);
        }
        let Some(known) = self.known(variable) else {
            let free = !self.resolve(t).mentions(variable);
            if let Some(slot) = self.known.get_mut(variable).filter(|_| free) {
                *slot = Some(t.clone());
            }
            return (free, false);
        };
        if known == *t {
            return (true, true);
        }
        if !self.assign(t, &known) {
            return (false, true);
        }
        let general = if t.is_as_general(&known) {
            t.clone()
        } else {
            known
        };
        // A variable that came to stand for itself would be resolved for ever.
        if !self.resolve(&general).mentions(variable)
            && let Some(slot) = self.known.get_mut(variable)
        {
            *slot = Some(general);
        }
        (true, true)
    }
}
