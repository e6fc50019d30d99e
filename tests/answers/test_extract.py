"""From a text to the answer it gives, by the kind of answer."""

import pytest

from s3dlm.answers import extract

OPTIONS = "What do plants make?\n\nOptions:\nA. gold\nB. sugar\nC. iron\n\nChoose ONE letter."
GRID = "1234341221434321"
ANSWERS = {  # task: {answer: texts that give it}
    "math500": {  # the cascade
        "18": [r"so \boxed{18}"],
        "2": [r"first \boxed{1}, then \boxed{2}"],
        r"\frac{1}{2}": [r"\boxed{\frac{1}{2}}"],
        "a{b{c}d}e": [r"\boxed{a{b{c}d}e} f}"],
        "7": [r"\boxed{7} <answer>8</answer> #### 9"],
        "8": ["<answer>\n8\n</answer> #### 9. The answer is 10"],
        "9": ["#### 9\nThe answer is 10"],
        "10": ["The answer is 10."],
        "3.5": ["The answer is: 3.5. Done."],
        "4": ["answer = 4", "Answer: 4"],
        "5": [r"\boxed{...} <answer>5</answer>", r"\boxed{5}<|eot_id|><|endoftext|><|endoftext|>"],
        "6": [r"\boxed{6} and \boxed{7", r"\fbox{6}"],
        "many": [r"\boxed{many}"],
        None: ["answers vary", "", r"\boxed{}"],
    },
    "arc": {
        "B": [
            r"\boxed{B}", r"\boxed{b}", r"\boxed{\text{B}}", r"\boxed{B. sugar}", r"\boxed{(B)}", "<answer>B</answer>",
            "Because of light. Therefore the answer is B.", "Reasoning.\nB", r"\boxed{sugar}",
        ],
        "C": ["The correct option is (C)", "I choose C because it fits"],
        None: [r"\boxed{lead}", "The answer is a dog", "A dog is an animal", ""],
    },
    "countdown": {
        "87 - 85 + 60": [r"\boxed{87 - 85 + 60}"],
        "33 - 7 - 20": [r"\boxed{33 - 7 - 20 = 6}", r"\boxed{6 = 33 - 7 - 20}"],
        "3 * 4": [r"\boxed{3 \times 4}"],
        "(6 + 12) + 5": ["6 + 12 = 18. <answer>(6 + 12) + 5</answer>"],
        "3 + 4": [r"\boxed{\text{the sum } 3 + 4}"],
        None: ["no delimiter 3 + 4", r"\boxed{42}"],
    },
    "sudoku": {
        GRID: [
            f"<answer>\n{GRID}\n</answer>", "<answer>1 2 3 4\n3 4 1 2\n2 1 4 3\n4 3 2 1</answer>", f"<answer>{GRID}",
            f"the grid {GRID} is it", rf"\boxed{{{GRID}}}", "<answer>12|34\n34|12\n--+--\n21|43\n43|21</answer>",
        ],
        None: ["nothing but 12"],
    },
    "general": {"a\nb": ["  a\nb <|endoftext|>"], None: [" <|eot_id|>\n"]},
}  # fmt: skip
CASES = [
    (task, text, answer)
    for task, answers in ANSWERS.items()
    for answer, texts in answers.items()
    for text in texts
]


@pytest.mark.parametrize(("task", "text", "answer"), CASES)
def test_the_answer_of_a_text(task, text, answer):
    assert extract(task, text, OPTIONS) == answer
