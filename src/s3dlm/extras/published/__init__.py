"""Methods of other papers with loops of their own."""
