//! What the API server checks when an expression is registered: every name is declared, every call has an overload for its
//! arguments, literals of lists and maps are of one type, constants convert, and the whole is a bool.
//!
//! Pure, any thread; owns the scope of variables while it walks the tree. It completes the tree in two ways: names of functions
//! with dots (`optional.of`) and names of types become what they mean. It never evaluates anything but conversions of literals.

use std::slice::from_ref;

use super::evaluate::{Fault, convert_literal};
use super::signatures::{FIELDS, GLOBALS, MEMBERS, TYPE_NAMES};
use super::syntax::{Element, Entry, Expr, Fold, FoldKind, Literal, Mode, Node};
use super::types::{BOOL, INT, NULL, Type, Types};

/// What is wrong, and where in the source.
pub(super) type Wrong = (usize, String);

/// The conversions that the API server computes at registration if the argument is a literal.
const CONVERSIONS: &[&str] = &[
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "string",
    "timestamp",
    "uint",
];

pub(super) fn check(expr: &mut Expr) -> Result<(), Wrong> {
    let mut checker = Checker::default();
    let found = checker.type_of(expr)?;
    match checker.types.resolve(&found) {
        BOOL => Ok(()),
        other => Err((expr.at, format!("must evaluate to bool but got {other}"))),
    }
}

#[derive(Default)]
struct Checker {
    types: Types,
    /// The variables of macros, the innermost last.
    scope: Vec<(String, Type)>,
    /// Above zero inside the arguments of `format`, whose lists may be mixed.
    mixed: usize,
}

type Checked = Result<Type, Wrong>;

impl Checker {
    fn type_of(&mut self, expr: &mut Expr) -> Checked {
        let at = expr.at;
        if let Some(name) = qualified(expr)
            && let Some(known) = TYPE_NAMES.iter().find(|known| **known == name)
            && !self.is_local(&name)
        {
            expr.node = Node::Literal(Literal::Type(known));
            return Ok(Type::Denoted(Box::new(Type::Dyn)));
        }
        match &mut expr.node {
            Node::Literal(literal) => Ok(literal_type(literal)),
            Node::Name(name) => self.name(at, name),
            Node::Select {
                operand,
                field,
                mode,
            } => {
                let operand = self.resolved(operand)?;
                self.select(at, &operand, field, *mode)
            }
            Node::Index {
                operand,
                index,
                optional,
            } => {
                let given = [self.type_of(operand)?, self.type_of(index)?];
                let function = if *optional { "_[?_]" } else { "_[_]" };
                self.overload(at, function, GLOBALS, &given)
            }
            Node::Call { .. } => self.call(expr),
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::All(operands) | Node::Any(operands) => {
                for operand in operands {
                    self.require(operand, &BOOL)?;
                }
                Ok(BOOL)
            }
            Node::Choice(parts) => {
                let mut given = Vec::new();
                for part in parts.iter_mut() {
                    given.push(self.type_of(part)?);
                }
                self.overload(at, "_?_:_", GLOBALS, &given)
            }
            Node::Fold(fold) => self.fold(fold),
            Node::OptionalMap {
                target,
                variable,
                body,
                flat,
            } => {
                let variable = variable.clone();
                let inner = match self.resolved(target)? {
                    Type::Optional(inner) => *inner,
                    Type::Dyn => Type::Dyn,
                    other => return Err((at, format!("optMap needs an optional, not {other}"))),
                };
                let flat = *flat;
                let result = self.within(&[(variable, inner)], |checker| checker.resolved(body))?;
                match result {
                    Type::Optional(_) | Type::Dyn if flat => Ok(result),
                    other if flat => {
                        Err((at, format!("optFlatMap needs an optional, not {other}")))
                    }
                    other => Ok(Type::optional(other)),
                }
            }
        }
    }

    fn resolved(&mut self, expr: &mut Expr) -> Checked {
        let found = self.type_of(expr)?;
        Ok(self.types.resolve(&found))
    }

    fn require(&mut self, expr: &mut Expr, wanted: &Type) -> Result<(), Wrong> {
        let found = self.type_of(expr)?;
        if self.types.fit(from_ref(&found), from_ref(wanted)) {
            return Ok(());
        }
        let found = self.types.resolve(&found);
        Err((expr.at, format!("expected {wanted}, found {found}")))
    }

    fn within<R>(&mut self, names: &[(String, Type)], work: impl FnOnce(&mut Checker) -> R) -> R {
        let before = self.scope.len();
        self.scope.extend_from_slice(names);
        let result = work(self);
        self.scope.truncate(before);
        result
    }

    fn is_local(&self, name: &str) -> bool {
        self.scope.iter().any(|(own, _)| own == name)
    }

    fn name(&self, at: usize, name: &str) -> Checked {
        if let Some((_, found)) = self.scope.iter().rev().find(|(own, _)| own == name) {
            return Ok(found.clone());
        }
        match name {
            "object" | "oldObject" => Ok(Type::Dyn),
            "request" => Ok(Type::Named("kubernetes.AdmissionRequest")),
            "namespaceObject" => Ok(Type::Named("kubernetes.Namespace")),
            "authorizer" => Ok(Type::Named("authorizer")),
            _ => Err((at, format!("undeclared reference to `{name}`"))),
        }
    }

    fn select(&mut self, at: usize, operand: &Type, field: &str, mode: Mode) -> Checked {
        let (inner, optional) = match operand {
            Type::Optional(inner) => (inner.as_ref(), true),
            other => (other, false),
        };
        let found = match inner {
            Type::Dyn | Type::Variable(_) => Type::Dyn,
            Type::Map(_, value) => value.as_ref().clone(),
            Type::Named(name) => {
                let mut of_type = FIELDS
                    .iter()
                    .filter(|(owner, _, _)| owner == name)
                    .peekable();
                if of_type.peek().is_none() {
                    return Err((at, format!("{inner} has no fields")));
                }
                of_type
                    .find(|(_, names, _)| names.split(' ').any(|name| name == field))
                    .map(|(_, _, found)| Type::read(&mut found.split(' '), [0, 0]))
                    .ok_or_else(|| (at, format!("undefined field `{field}`")))?
            }
            other => return Err((at, format!("{other} has no fields"))),
        };
        Ok(match mode {
            Mode::Test => BOOL,
            Mode::Plain if !optional => found,
            Mode::Plain | Mode::Optional => Type::optional(found),
        })
    }

    fn call(&mut self, expr: &mut Expr) -> Checked {
        let at = expr.at;
        let Node::Call {
            function,
            target,
            arguments,
        } = &mut expr.node
        else {
            return Ok(Type::Dyn);
        };
        // A dotted name may be that of a function: `optional.of(1)`.
        if let Some(name) = target.as_ref().and_then(|target| qualified(target)) {
            let name = format!("{name}.{function}");
            let root = name.split('.').next().unwrap_or_default();
            if declared(GLOBALS, &name) && !self.is_local(root) {
                *function = name;
                *target = None;
            }
        }
        let mut given = Vec::new();
        let mut table = GLOBALS;
        if let Some(target) = target {
            table = MEMBERS;
            given.push(self.type_of(target)?);
        }
        let mixed = usize::from(function == "format");
        self.mixed += mixed;
        for argument in arguments.iter_mut() {
            given.push(self.type_of(argument)?);
        }
        self.mixed -= mixed;
        let result = self.overload(at, function, table, &given)?;
        if function == "format" {
            self.format(target.as_deref(), arguments)?;
        }
        if let [
            Expr {
                node: Node::Literal(literal),
                ..
            },
        ] = arguments.as_slice()
            && target.is_none()
            && CONVERSIONS.contains(&function.as_str())
            && let Err(Fault::Error(words)) = convert_literal(function, literal)
        {
            return Err((at, words));
        }
        Ok(result)
    }

    /// A literal pattern with a literal list is compared with it: as many clauses as elements, and of fitting types.
    fn format(&mut self, pattern: Option<&Expr>, arguments: &mut [Expr]) -> Result<(), Wrong> {
        let (Some(pattern), [list]) = (pattern, arguments) else {
            return Ok(());
        };
        let (Node::Literal(Literal::Text(text)), Node::List(elements)) =
            (&pattern.node, &mut list.node)
        else {
            return Ok(());
        };
        let mut clauses = text.chars();
        let mut elements = elements.iter_mut();
        while clauses.any(|c| c == '%') {
            let clause = match clauses.next() {
                Some('%') => continue,
                Some('.') => clauses.find(|c| !c.is_ascii_digit()),
                clause => clause,
            };
            let wanted: &[&str] = match clause {
                Some('s') => &[],
                Some('d' | 'o') => &["int", "uint"],
                Some('f' | 'e') => &["double", "string"],
                Some('b') => &["int", "uint", "bool"],
                Some('x' | 'X') => &["int", "uint", "string", "bytes"],
                Some(other) => {
                    return Err((pattern.at, format!("`%{other}` is no clause of format")));
                }
                None => return Err((pattern.at, "the format ends within a clause".to_owned())),
            };
            let Some(element) = elements.next() else {
                return Err((list.at, "format has more clauses than elements".to_owned()));
            };
            let found = self.resolved(&mut element.value)?;
            let fits = match &found {
                Type::Dyn | Type::Variable(_) => true,
                Type::Named(name) if clause != Some('s') => wanted.contains(name),
                Type::Named(name) => !name.contains('.'),
                Type::Optional(_) => false,
                Type::List(_) | Type::Map(_, _) | Type::Denoted(_) => clause == Some('s'),
            };
            if !fits {
                let at = element.value.at;
                return Err((at, format!("a clause of format does not take {found}")));
            }
        }
        match elements.next() {
            Some(element) => Err((
                element.value.at,
                "format has fewer clauses than elements".to_owned(),
            )),
            None => Ok(()),
        }
    }

    fn overload(
        &mut self,
        at: usize,
        function: &str,
        table: &'static [(&'static str, &'static str, &'static str)],
        given: &[Type],
    ) -> Checked {
        let mut result: Option<Type> = None;
        let mut known = false;
        for (names, overloads, yields) in table {
            if !names.split(' ').any(|name| name == function) {
                continue;
            }
            known = true;
            for overload in overloads.split('|') {
                let fresh = [self.types.fresh(), self.types.fresh()];
                let mut words = overload
                    .split(' ')
                    .filter(|word| !word.is_empty())
                    .peekable();
                let mut wanted = Vec::new();
                while words.peek().is_some() {
                    wanted.push(Type::read(&mut words, fresh));
                }
                if !self.types.fit(given, &wanted) {
                    continue;
                }
                let found = Type::read(&mut yields.split(' '), fresh);
                let found = self.types.resolve(&found);
                result = Some(match result {
                    Some(before) if before != found => Type::Dyn,
                    _ => found,
                });
            }
        }
        result.ok_or_else(|| {
            if !known && !declared(GLOBALS, function) && !declared(MEMBERS, function) {
                return (at, format!("undeclared reference to `{function}`"));
            }
            let given: Vec<String> = given
                .iter()
                .map(|found| self.types.resolve(found).to_string())
                .collect();
            let given = given.join(", ");
            (at, format!("no overload of `{function}` takes ({given})"))
        })
    }

    fn list(&mut self, elements: &mut [Element]) -> Checked {
        let mut common = None;
        for Element { optional, value } in elements {
            let found = self.element(value, *optional)?;
            self.join(&mut common, found, value.at)?;
        }
        let element = common.unwrap_or_else(|| Type::Variable(self.types.fresh()));
        Ok(Type::list(element))
    }

    fn map(&mut self, entries: &mut [Entry]) -> Checked {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.type_of(&mut entry.key)?;
            self.join(&mut keys, key, entry.key.at)?;
            let value = self.element(&mut entry.value, entry.optional)?;
            self.join(&mut values, value, entry.value.at)?;
        }
        let key = keys.unwrap_or_else(|| Type::Variable(self.types.fresh()));
        let value = values.unwrap_or_else(|| Type::Variable(self.types.fresh()));
        Ok(Type::map(key, value))
    }

    fn element(&mut self, value: &mut Expr, optional: bool) -> Checked {
        let found = self.resolved(value)?;
        match found {
            found if !optional => Ok(found),
            Type::Optional(inner) => Ok(*inner),
            Type::Dyn => Ok(Type::Dyn),
            other => Err((value.at, format!("expected an optional, found {other}"))),
        }
    }

    /// All elements of a literal are of one type, and `dyn` is a type of its own here.
    fn join(&mut self, common: &mut Option<Type>, found: Type, at: usize) -> Result<(), Wrong> {
        let Some(before) = common else {
            *common = Some(found);
            return Ok(());
        };
        let resolved = self.types.resolve(before);
        let alike = self.types.fit(from_ref(&resolved), from_ref(&found))
            && (self.types.resolve(before) == self.types.resolve(&found));
        if !alike {
            if self.mixed == 0 {
                return Err((at, format!("expected {resolved}, found {found}")));
            }
            *common = Some(Type::Dyn);
        }
        Ok(())
    }

    fn fold(&mut self, fold: &mut Fold) -> Checked {
        let range = self.resolved(&mut fold.range)?;
        let (single, first, second) = match range {
            Type::List(element) => (*element.clone(), INT, *element),
            Type::Map(key, value) => (*key.clone(), *key, *value),
            Type::Dyn | Type::Variable(_) => (Type::Dyn, Type::Dyn, Type::Dyn),
            other => return Err((fold.range.at, format!("{other} cannot be walked through"))),
        };
        let names = match &fold.second {
            None => vec![(fold.first.clone(), single.clone())],
            Some(name) => vec![(fold.first.clone(), first.clone()), (name.clone(), second)],
        };
        self.within(&names, |checker| {
            if let Some(filter) = &mut fold.filter {
                checker.require(filter, &BOOL)?;
            }
            match fold.kind {
                FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                    checker.require(&mut fold.body, &BOOL)?;
                    Ok(BOOL)
                }
                FoldKind::Filter => {
                    checker.require(&mut fold.body, &BOOL)?;
                    Ok(Type::list(single))
                }
                FoldKind::List => Ok(Type::list(checker.resolved(&mut fold.body)?)),
                FoldKind::TransformMap => {
                    let value = checker.resolved(&mut fold.body)?;
                    Ok(Type::map(first, value))
                }
                FoldKind::TransformMapEntry => match checker.resolved(&mut fold.body)? {
                    found @ (Type::Map(_, _) | Type::Dyn) => Ok(found),
                    other => Err((fold.body.at, format!("expected a map, found {other}"))),
                },
            }
        })
    }
}

fn declared(table: &[(&str, &str, &str)], function: &str) -> bool {
    table
        .iter()
        .any(|(names, _, _)| names.split(' ').any(|name| name == function))
}

/// `a.b.c` as a name with dots.
fn qualified(expr: &Expr) -> Option<String> {
    match &expr.node {
        Node::Name(name) => Some(name.clone()),
        Node::Select {
            operand,
            field,
            mode: Mode::Plain,
        } => Some(format!("{}.{field}", qualified(operand)?)),
        _ => None,
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => NULL,
        Literal::Bool(_) => BOOL,
        Literal::Int(_) => INT,
        Literal::Uint(_) => Type::Named("uint"),
        Literal::Double(_) => Type::Named("double"),
        Literal::Text(_) => Type::Named("string"),
        Literal::Bytes(_) => Type::Named("bytes"),
        Literal::Type(_) => Type::Denoted(Box::new(Type::Dyn)),
    }
}
