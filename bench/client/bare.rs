//! The limit of every program: one that prints a line and ends.

fn main() {
    println!("bare");
}
